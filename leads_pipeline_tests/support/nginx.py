"""The real nginx, with a configuration of the test's."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leads_pipeline_tests.support.newcomer import PATIENCE_SECONDS, wait_for
from leads_pipeline_tests.support.serving import free_port, listens

_AROUND = """
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    log_format brief "$status $upstream_status $msec $request_uri";
    access_log {folder}/access.log brief;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{inside}
}}
"""


@contextmanager
def running_nginx(folder: Path, inside: Callable[[int], str]) -> Iterator[int]:
    """nginx with what `inside` puts into its http context for a port; the port.

    Its logs are in `folder`.
    """
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed: apt install nginx-light")
    folder.mkdir()
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(_AROUND.format(folder=folder, inside=inside(port)))
    process = subprocess.Popen(
        [program, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(config)]
    )

    def has_started() -> bool:
        assert process.poll() is None, (folder / "error.log").read_text()
        return listens(port)

    try:
        wait_for(has_started)
        yield port
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)

"""The real nginx, with deploy/nginx.conf."""

import os
import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from leads_pipeline_tests.support.newcomer import PATIENCE_SECONDS, wait_for
from leads_pipeline_tests.support.serving import free_port, listens, make_certificate

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
def running_nginx(
    folder: Path, text: str, replaced: Mapping[str, str]
) -> Iterator[tuple[int, ssl.SSLContext]]:
    """nginx with a part of deploy/nginx.conf, in which names are replaced, and a certificate.

    Give the port, and what trusts the certificate of localhost. Its logs are in `folder`.
    """
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed: apt install nginx-light")

    folder.mkdir()
    port = free_port()
    certificate, key = make_certificate(folder)

    text = text.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
    text = re.sub(r"/etc/ssl/certs/\w+\.pem", str(certificate), text)
    text = re.sub(r"/etc/ssl/private/\w+\.key", str(key), text)
    for theirs, mine in replaced.items():
        assert theirs in text
        text = text.replace(theirs, mine)

    config = folder / "nginx.conf"
    config.write_text(_AROUND.format(folder=folder, inside=text))
    process = subprocess.Popen(
        [program, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(config)]
    )

    def has_started() -> bool:
        assert process.poll() is None, (folder / "error.log").read_text()
        return listens(port)

    try:
        wait_for(has_started)
        yield port, ssl.create_default_context(cafile=certificate)
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)

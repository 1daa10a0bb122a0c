"""Faults of connections, shown by `alert --test` and `doctor`. See the package for how the marks are used."""

from contextlib import closing
from pathlib import Path

import pytest

from leads_pipeline_tests.faults import command
from leads_pipeline_tests.faults.conftest import Install
from leads_pipeline_tests.support.raw_server import RawServer, respond

NOBODY = "http://127.0.0.1:9"  # nothing listens there


@pytest.mark.parametrize("arguments", [("alert", "--test"), ("doctor",)], ids=" ".join)
@pytest.mark.parametrize("file", ["nothing.pem", "folder", "empty.pem"])
def test_a_certificate_file_that_cannot_be_read_is_named(
    install: Install, tmp_path: Path, file: str, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.pem").touch()
    install(NOBODY, LEADS_ALERT_WEBHOOK="https://hooks.example/", SSL_CERT_FILE=str(tmp_path / file))
    text = command(*arguments).text
    assert "SSL_CERT_FILE" in text
    assert file in text


def test_a_proxy_that_wants_a_password_is_named(install: Install) -> None:
    with closing(RawServer()) as proxy:
        proxy.script = respond(b"", "Connection: close", status=407)
        install("https://portal.example", HTTPS_PROXY=proxy.url)
        _, message = command("doctor", "--json").findings()["token"]
    assert "proxy" in message.lower()
    assert "check the token server's address" not in message

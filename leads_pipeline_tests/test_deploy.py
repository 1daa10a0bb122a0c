"""What lies in deploy/: it names commands that there are, and does what it says, as far as it can be tried here."""

import base64
import http.client
import http.server
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from leads_pipeline.cli import main
from leads_pipeline_tests.newcomer import ROOT
from leads_pipeline_tests.nginx import running_nginx

DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("systemd/*.service"))
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
OURS = [service for name, service in COMPOSE["services"].items() if name != "postgres"]
CONTAINERFILE = (DEPLOY / "Containerfile").read_text(encoding="utf-8")


def commands() -> Iterator[tuple[str, ...]]:
    """What is run, without the program's own name."""
    for unit in UNITS:
        [line] = re.findall(r"^ExecStart=\S+/leads-pipeline (.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE)
        yield tuple(shlex.split(line))
    for service in OURS:
        yield tuple(service["command"])
    [line] = re.findall(r"^CMD \[(.*)\]$", CONTAINERFILE, re.MULTILINE)
    yield tuple(yaml.safe_load(f"[{line}]"))


@pytest.mark.parametrize("arguments", sorted(set(commands())), ids=" ".join)
def test_each_command_is_one_of_ours_with_options_that_it_has(arguments: tuple[str, ...]) -> None:
    command = main.commands[arguments[0]]
    command.make_context(arguments[0], list(arguments[1:]))


def test_units_run_by_an_account_without_rights_and_are_well_formed(tmp_path: Path) -> None:
    accounts = (DEPLOY / "systemd" / "leads-pipeline.sysusers").read_text(encoding="utf-8")
    assert len(UNITS) == 2
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8")
        [user] = re.findall(r"^User=(.*)$", text, re.MULTILINE)
        assert f"\nu {user} " in accounts
        assert "\nCapabilityBoundingSet=\n" in text
        assert "\nProtectSystem=strict\n" in text
        # The program lies elsewhere here.
        (tmp_path / unit.name).write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    units = [str(tmp_path / unit.name) for unit in UNITS]
    seen = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )
    assert (seen.returncode, seen.stderr) == (0, "")


def test_containers_write_to_their_volume_alone_and_have_no_rights() -> None:
    assert re.findall(r"^USER (.*)$", CONTAINERFILE, re.MULTILINE) == ["10001:10001"]
    assert "--require-hashes" in CONTAINERFILE
    for service in COMPOSE["services"].values():
        assert service["read_only"] is True
        assert service["restart"] == "always"  # the one that podman-restart.service starts after a reboot
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "healthcheck" in service
    # Postgres lets in whoever reaches its socket, which those two alone do.
    assert "ports" not in COMPOSE["services"]["postgres"]
    assert COMPOSE["services"]["postgres"]["command"] == ["postgres", "-c", "listen_addresses="]
    assert "mkdir --mode=1777 /run/postgresql" in CONTAINERFILE
    for service in OURS:
        assert service["volumes"] == ["data:/data", "postgres-socket:/run/postgresql"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        context = DEPLOY / service["build"]["context"]
        assert (context / service["build"]["dockerfile"]).is_file()
    copied = re.findall(r"^COPY (?!--)(.*) \S+$", CONTAINERFILE, re.MULTILINE)
    assert all((ROOT / name).exists() for names in copied for name in names.split())
    let_through = (ROOT / ".containerignore").read_text(encoding="utf-8")
    assert all(f"\n!{name}\n" in let_through for names in copied for name in names.split())


class _Pages(http.server.BaseHTTPRequestHandler):
    """Answers with its own name and with what reached it of a login and of a change of protocol."""

    def __init__(self, name: str, *arguments: Any) -> None:
        self.name = name
        super().__init__(*arguments)

    def do_GET(self) -> None:
        told = [self.name, self.headers.get("Upgrade"), self.headers.get("Connection"), self.headers["Host"]]
        told.append(self.headers.get("Authorization") or "no login")
        body = " ".join(map(str, told)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def pages(name: str) -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Pages, name))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def test_the_proxy_asks_for_a_login_and_leads_each_to_their_pages(tmp_path: Path) -> None:
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    text += (ROOT / "examples" / "nginx.conf").read_text(encoding="utf-8")
    names = ("pipeline.agency.example", "pipeline-view.agency.example")
    certificate, key = tmp_path / "pipeline.pem", tmp_path / "pipeline.key"
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run([*make.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    for people in ("operators", "viewers"):
        (tmp_path / people).write_text(f"{people}:{{PLAIN}}secret\n")
    trusting = ssl.create_default_context(cafile=certificate)
    with pages("all") as whole, pages("view") as view:

        def here(port: int) -> str:
            mine = {
                "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
                "/etc/ssl/certs/pipeline.pem": str(certificate),
                "/etc/ssl/private/pipeline.key": str(key),
                "/etc/ssl/certs/leads.pem": str(certificate),
                "/etc/ssl/private/leads.key": str(key),
                "client_header_timeout 10s": "client_header_timeout 1s",
                "/etc/nginx/pipeline.operators": str(tmp_path / "operators"),
                "/etc/nginx/pipeline.viewers": str(tmp_path / "viewers"),
                "127.0.0.1:3000": f"127.0.0.1:{whole}",
                "127.0.0.1:3001": f"127.0.0.1:{view}",
            }
            assert all(theirs in text for theirs in mine)
            return re.sub("|".join(map(re.escape, mine)), lambda found: mine[found[0]], text)

        with running_nginx(tmp_path / "nginx", here) as port:

            def ask(name: str, who: str | None, **headers: str) -> tuple[int, str]:
                if who:
                    headers["Authorization"] = "Basic " + base64.b64encode(f"{who}:secret".encode()).decode()
                with closing(http.client.HTTPSConnection("localhost", port, timeout=10, context=trusting)) as client:
                    client.request("GET", "/", headers={"Host": name, **headers})
                    answer = client.getresponse()
                    return answer.status, answer.read().decode()

            for name, who, own in zip(names, ("operators", "viewers"), ("all", "view"), strict=True):
                assert ask(name, who) == (200, f"{own} None close {name} no login")
                assert ask(name, who, Upgrade="websocket", Connection="Upgrade")[1].startswith(
                    f"{own} websocket upgrade"
                )
            assert [ask(name, who)[0] for name in names for who in (None, "nobody")] == [401] * 4
            assert ask(names[0], "viewers")[0] == ask(names[1], "operators")[0] == 401
            # A slow head for the last server: until it has come, nginx goes by what the first one says.
            with (
                socket.create_connection(("127.0.0.1", port), 30) as plain,
                trusting.wrap_socket(plain, server_hostname="localhost") as slow,
            ):
                slow.sendall(b"POST /leads HTTP/1.1\r\nHost: leads.agency.example\r\n")
                assert slow.recv(1) == b""

"""The receiver by real requests: the keys it takes, its answers, its log, and that 200 means
stored.
"""

import http.client
import json
import logging
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from leads_pipeline.domain.contract import ReceivedLead
from leads_pipeline.domain.window import Scope, today
from leads_pipeline.errors import SettingsError
from leads_pipeline.features.pushes import receiver
from leads_pipeline.features.pushes.placement import Placement
from leads_pipeline.features.pushes.receiver import MAX_BODY_BYTES, PATH, Receiver
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.landing import Landed, Raw
from leads_pipeline.raw.names import Place, list_places
from leads_pipeline.raw.rows import merged
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.house import LONDON
from leads_pipeline_tests.support.newcomer import BIN, PATIENCE_SECONDS, ROOT
from leads_pipeline_tests.support.nginx import running_nginx

KEY = "0123456789abcdef-key"
SECRET_TEXT = "canary@example.com"
DELIVERY = (
    b'{ "applicant": {"id":"lead-1","price":250000.10, "contact":{"email":"canary@example.com"}} }'
)
JSON = {"Content-Type": "application/json"}
HEADERS = {"Authorization": f"Bearer {KEY}", **JSON}
SCOPES = (Scope.parse("branch-101"),)


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    return DataFolder.at(tmp_path / "data")


@contextmanager
def receiving(data: DataFolder) -> Iterator[int]:
    """A receiver on a socket, in a thread; its port."""
    server = receiver.server(Receiver(data.raw, Placement(SCOPES, LONDON), KEY), lambda: None)
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(PATIENCE_SECONDS)


def deliver(
    port: int,
    body: Any = DELIVERY,
    headers: Mapping[str, str | bytes] = HEADERS,
    *,
    method: str = "POST",
    path: str = PATH,
) -> tuple[int, dict[str, str], Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    with closing(connection):
        connection.request(method, path, body=body, headers=dict(headers))
        answer = connection.getresponse()
        told = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, told, json.loads(answer.read())


def kept(data: DataFolder) -> list[str]:
    """The payloads in the raw files."""
    rows = [merged(data.raw.read(place).rows) for place in list_places(data.store)]
    return [row.payload for of_place in rows for row in of_place]


# --- what is taken --------------------------------------------------------------------------------


def test_every_form_of_a_delivery_is_taken(data: DataFolder) -> None:
    both = b'{"appraisal": {"id":"b"}, "unknown": 1, "applicant": {"id":"a"}}'
    answer = b'{"applicants": [{"id":"c","n":NaN}, "odd"], "appraisal": null}'
    none = b'{"appraisals": []}'

    with receiving(data) as port:
        received = [deliver(port, body)[2] for body in (both, answer, none)]

    assert received == [{"received": 2}, {"received": 2}, {"received": 0}]
    assert sorted(kept(data)) == ['"odd"', '{"id":"a"}', '{"id":"b"}', '{"id":"c","n":NaN}']


def test_the_key_is_taken_in_each_form_at_both_addresses(data: DataFolder) -> None:
    forms = (
        {"Authorization": KEY},
        {"authorization": f"bearer  {KEY}"},
        {"X-API-Key": KEY},
        {"Authorization": "Basic somebody-elses", "X-API-Key": KEY},
    )
    with receiving(data) as port:
        for form, path in product(forms, ("/leads", "/leads/")):
            assert deliver(port, headers={**JSON, **form}, path=path)[0] == 200


def test_nothing_is_answered_before_it_is_on_the_disk(
    data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_asked = threading.Event()
    may_write = threading.Event()
    real = Raw.add

    def add(*arguments: Any) -> Landed:
        is_asked.set()
        assert may_write.wait(PATIENCE_SECONDS)
        return real(*arguments)

    monkeypatch.setattr(Raw, "add", add)
    answers: list[int] = []
    with receiving(data) as port:
        sender = threading.Thread(target=lambda: answers.append(deliver(port)[0]))
        sender.start()
        assert is_asked.wait(PATIENCE_SECONDS)
        time.sleep(0.2)
        assert answers == []
        may_write.set()
        sender.join(PATIENCE_SECONDS)
    assert answers == [200]
    assert len(kept(data)) == 1


def test_a_lead_is_stored_once_in_the_window_of_its_day_and_branch(data: DataFolder) -> None:
    day = today(LONDON, datetime.now(UTC)) - timedelta(days=4)
    lead = {"id": "lead-1", "createdAt": f"{day}T12:00:00Z", "portalBranchId": "101"}
    with receiving(data) as port:
        assert deliver(port, json.dumps({"applicant": lead}))[0] == 200
        assert deliver(port, json.dumps({"applicant": lead}))[0] == 200
    [place] = list_places(data.store)
    assert (place.kind.name, place.day, place.scope) == ("applicant", day, "branch-101")
    assert kept(data) == [json.dumps(lead)]


# --- what is refused ------------------------------------------------------------------------------

WRONG: dict[str, tuple[int, dict[str, Any]]] = {
    "another method": (405, {"method": "GET"}),
    "another path": (404, {"path": f"/other?key={KEY}"}),
    "no key": (401, {"headers": JSON}),
    "a wrong key": (401, {"headers": {**JSON, "Authorization": "Bearer 0123456789abcdef-kex"}}),
    "the beginning of the key": (401, {"headers": {**JSON, "Authorization": KEY[:-1]}}),
    "another media type": (415, {"headers": {**HEADERS, "Content-Type": "text/plain"}}),
    "a compressed body": (415, {"headers": {**HEADERS, "Content-Encoding": "gzip"}}),
    "too many bytes in chunks": (413, {"body": [b" " * MAX_BODY_BYTES, b" "]}),
    "no JSON": (400, {"body": b"<html>canary@example.com</html>"}),
    "no lead": (400, {"body": b'{"canary@example.com": {}}'}),
}


def test_a_refused_delivery_is_told_why_logged_once_and_kept_nowhere(
    data: DataFolder, caplog: pytest.LogCaptureFixture
) -> None:
    with receiving(data) as port:
        for what, (status, request) in WRONG.items():
            caplog.clear()
            answered, headers, said = deliver(port, **request)
            assert answered == status, what
            [error] = said["errors"]
            assert ("www-authenticate" in headers) == (status == 401)
            logged = f"A push from 127.0.0.1 was refused with {status}. {error['message']}"
            assert [record.getMessage() for record in caplog.records] == [logged], what
            for secret in (KEY, SECRET_TEXT, "0123456789"):
                assert secret not in caplog.text + json.dumps(said)
            assert deliver(port, b'{"applicants": []}')[0] == 200  # it goes on
    assert kept(data) == []


HEAD = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode()


def test_a_large_body_is_refused_unread_and_no_key_before_the_body(data: DataFolder) -> None:
    large = HEAD + f"X-API-Key: {KEY}\r\nContent-Length: 1000000000000\r\n\r\n".encode()
    without_key = HEAD + b"Content-Length: 100\r\n\r\n{"
    with receiving(data) as port:
        for sent, status in ((large, b"413"), (without_key, b"401")):
            with socket.create_connection(
                ("127.0.0.1", port), timeout=PATIENCE_SECONDS
            ) as connection:
                connection.sendall(sent)
                assert connection.recv(4096).startswith(b"HTTP/1.1 " + status)


def test_a_disk_that_cannot_be_used_is_told_as_503(
    data: DataFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "data" / "raw"
    folder.parent.mkdir()
    folder.touch()  # a file in the folder's place
    with receiving(data) as port:
        status, headers, said = deliver(port)
        assert (status, headers["retry-after"]) == (503, "5")
        folder.unlink()
        assert deliver(port)[0] == 200
    assert "could not be stored" in caplog.text
    assert SECRET_TEXT not in caplog.text + json.dumps(said)


def test_while_the_suppression_list_cannot_be_read_deliveries_are_to_come_again(
    data: DataFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    list_file = tmp_path / "data" / "privacy" / "suppressed"
    list_file.mkdir(parents=True)  # a folder in the file's place
    with receiving(data) as port:
        assert deliver(port)[0] == 503
        assert kept(data) == []
        list_file.rmdir()
        assert deliver(port)[0] == 200
    assert len(kept(data)) == 1
    assert KEY not in caplog.text
    assert SECRET_TEXT not in caplog.text


def test_a_fault_of_the_program_is_500_and_quotes_nothing(
    data: DataFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def add(_self: Raw, _place: Place, leads: Sequence[ReceivedLead], _at: datetime) -> None:
        raise RuntimeError(leads[0].payload)

    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(Raw, "add", add)
    with receiving(data) as port:
        status, _, said = deliver(port)
    assert status == 500
    assert "RuntimeError" in caplog.text
    assert SECRET_TEXT not in caplog.text + json.dumps(said)


def test_a_short_key_is_refused(data: DataFolder) -> None:
    with pytest.raises(SettingsError, match="fewer than 16"):
        Receiver(data.raw, Placement(SCOPES, LONDON), "k" * 15)


# --- behind nginx ---------------------------------------------------------------------------------

NGINX = (ROOT / "deploy" / "nginx.conf").read_text(encoding="utf-8").partition("# The receiver")[2]


def test_nginx_as_in_deploy_holds_slow_senders_off_and_names_the_sender(
    data: DataFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unfinished = [HEAD, HEAD + b"Content-Length: 100\r\n\r\n{"]
    with receiving(data) as upstream, ExitStack() as opened:
        ours = {"127.0.0.1:8750": f"127.0.0.1:{upstream}"}
        with running_nginx(tmp_path / "nginx", f"#{NGINX}", ours) as (port, trusting):
            for sent in unfinished * 30:
                slow = socket.create_connection(
                    ("127.0.0.1", port), source_address=("127.0.0.2", 0)
                )
                slow = trusting.wrap_socket(slow, server_hostname="localhost")
                opened.enter_context(slow)
                slow.sendall(sent)

            statuses = []
            for headers in (HEADERS, JSON):
                sender = http.client.HTTPSConnection(
                    "localhost", port, context=trusting, source_address=("127.0.0.3", 0)
                )
                with closing(sender):
                    sender.request("POST", PATH, body=DELIVERY, headers=headers)
                    statuses.append(sender.getresponse().status)

            assert slow.recv(12) == b"HTTP/1.1 503", "one address had more connections than it may"
    assert statuses == [200, 401]
    assert len(kept(data)) == 1
    assert "A push from 127.0.0.3 was refused with 401." in caplog.text


# --- the command ----------------------------------------------------------------------------------


def test_the_command_receives_until_it_is_told_to_stop_and_logs_what_it_refuses(
    tmp_path: Path,
) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    process = subprocess.Popen(
        [BIN / "leads-pipeline", "receive", "--port", "0"],
        cwd=tmp_path,
        env={**os.environ, "LEADS_RECEIVE_KEY_FILE": "key"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        said = process.stdout.readline()
        [port] = map(int, re.findall(r"http://127\.0\.0\.1:(\d+)/leads", said))
        (tmp_path / "key").write_text("a key of 16 letters and more, put there while it runs")
        statuses = [deliver(port)[0], deliver(port, b"x")[0], deliver(port, headers=JSON)[0]]
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()

    assert statuses == [200, 400, 401]
    assert kept(DataFolder.at(tmp_path / "data")) == [DELIVERY[15:-2].decode()]
    line = r"^20\d\d-\d\d-\d\d .* WARNING A push from 127\.0\.0\.1 was refused with (\d+)\. "
    assert re.findall(line, errors, re.MULTILINE) == ["400", "401"]
    assert KEY not in said + rest + errors
    assert SECRET_TEXT not in said + rest + errors


def test_the_command_does_not_start_without_a_key() -> None:
    result = run("receive", "--port", "0")

    assert result.exit_code == 2
    assert "Set LEADS_RECEIVE_KEY or LEADS_RECEIVE_KEY_FILE" in " ".join(result.output.split())

import hmac
import http.client
import json
import logging
import os
import random
import re
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest
from click.testing import CliRunner

from leads_pipeline import cli, receiver
from leads_pipeline.contract import APPLICANT, APPRAISAL, PushedLead
from leads_pipeline.credentials import FileSecret, SecretSource, StaticSecret
from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.flatten.batches import flatten_day
from leads_pipeline.lake import Lake
from leads_pipeline.receiver import PATH, Limits, Receiver, _Writer, read_key
from leads_pipeline.spool import Placement, Spool
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope, today
from leads_pipeline_tests.newcomer import free_port
from leads_pipeline_tests.nginx import running_nginx
from leads_pipeline_tests.staging import LONDON

KEY = "0123456789abcdef-key"
SECRET_TEXT = "canary@example.com"
DELIVERY = b'{ "applicant": {"id":"lead-1","price":250000.10, "contact":{"email":"canary@example.com"}} }'
HEADERS = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
SCOPES = (Scope.parse("branch-101"),)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(Lake(tmp_path / "data"))


@contextmanager
def receiving(
    spool: Spool,
    limits: Limits | None = None,
    key: SecretSource | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[int]:
    """A receiver on a socket, in a thread; its port."""
    limits = limits or Limits()
    server = receiver.server(Receiver(spool, key or StaticSecret(KEY), limits, clock=clock), limits)
    server.config.timeout_graceful_shutdown = 2
    with socket.create_server(("127.0.0.1", 0), backlog=receiver.BACKLOG) as listener:
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(10)


def deliver(
    port: int,
    body: Any = DELIVERY,
    headers: Mapping[str, str] = HEADERS,
    *,
    method: str = "POST",
    path: str = PATH,
) -> tuple[int, dict[str, str], Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body=body, headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, json.loads(answer.read())
    finally:
        connection.close()


def kept(spool: Spool) -> list[str]:
    """The payloads in the spool."""
    lines = [line for path in spool.waiting() for line in path.read_bytes().splitlines()[1:]]
    return [json.loads(line)["payload"] for line in lines]


# --- what is taken --------------------------------------------------------------------------------------------------


def test_a_delivery_is_kept_exactly_as_it_was_sent(spool: Spool) -> None:
    with receiving(spool) as port:
        status, _, said = deliver(port)
    assert (status, said) == (200, {"received": 1})
    assert kept(spool) == ['{"id":"lead-1","price":250000.10, "contact":{"email":"canary@example.com"}}']


def test_every_form_of_a_delivery_is_taken(spool: Spool) -> None:
    both = b'{"appraisal": {"id":"b"}, "unknown": 1, "applicant": {"id":"a"}}'
    answer = b'{"applicants": [{"id":"c"}, "odd", {"id":"d","n":NaN}], "appraisal": null}'
    none = b'{"appraisals": []}'
    with receiving(spool) as port:
        received = [deliver(port, body)[2] for body in (both, answer, none)]
    assert received == [{"received": 2}, {"received": 3}, {"received": 0}]
    assert sorted(kept(spool)) == ['"odd"', '{"id":"a"}', '{"id":"b"}', '{"id":"c"}', '{"id":"d","n":NaN}']


@pytest.mark.parametrize("header", [{"authorization": f"bearer  {KEY}"}, {"X-API-Key": KEY}])
def test_the_key_is_taken_as_bearer_token_and_as_api_key(spool: Spool, header: dict[str, str]) -> None:
    with receiving(spool) as port:
        assert deliver(port, headers={"Content-Type": "application/json; charset=utf-8", **header})[0] == 200


def test_nothing_is_answered_before_it_is_on_the_disk(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    may_write, writes, arrived = threading.Event(), [], []
    real, real_write = Spool.add, _Writer.write

    def add(self: Spool, pushed: list[PushedLead]) -> None:
        writes.append(len(pushed))
        assert may_write.wait(10)
        real(self, pushed)

    async def write(self: _Writer, pushed: Sequence[PushedLead]) -> None:
        arrived.append(pushed)
        await real_write(self, pushed)

    monkeypatch.setattr(Spool, "add", add)
    monkeypatch.setattr(_Writer, "write", write)
    answers: list[int] = []
    with receiving(spool) as port:
        threads = [threading.Thread(target=lambda: answers.append(deliver(port)[0])) for _ in range(12)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 10
        while len(arrived) < 12 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert answers == []
        may_write.set()
        for thread in threads:
            thread.join(10)
    assert answers == [200] * 12
    # Those that came while the disk was busy went together.
    assert sum(writes) == 12
    assert len(writes) == 2


# --- what is refused ------------------------------------------------------------------------------------------------

WRONG = {
    "another method": (405, {"method": "GET"}),
    "another path": (404, {"path": "/other"}),
    "no key": (401, {"headers": {"Content-Type": "application/json"}}),
    "a wrong key": (401, {"headers": {**HEADERS, "Authorization": "Bearer 0123456789abcdef-kex"}}),
    "the beginning of the key": (401, {"headers": {**HEADERS, "Authorization": f"Bearer {KEY[:-1]}"}}),
    "the key as a password": (401, {"headers": {**HEADERS, "Authorization": f"Basic {KEY}"}}),
    "a key that is no ASCII": (401, {"headers": {**HEADERS, "Authorization": "Bearer \xff\xfe"}}),
    "another media type": (415, {"headers": {**HEADERS, "Content-Type": "text/plain"}}),
    "no media type": (415, {"headers": {"Authorization": f"Bearer {KEY}"}}),
    "a compressed body": (415, {"headers": {**HEADERS, "Content-Encoding": "gzip"}}),
    "too many bytes": (413, {"body": b" " * 1001}),
    "too many bytes in chunks": (413, {"body": iter([b" " * 600, b" " * 600])}),
    "no JSON": (400, {"body": b"<html>canary@example.com</html>"}),
    "an empty body": (400, {"body": b""}),
    "half a body": (400, {"body": b'{"applicant": {"id": "canary@example.com"'}),
    "a list": (400, {"body": b"[]"}),
    "no lead": (400, {"body": b'{"canary@example.com": {}}'}),
    "no lead but null": (400, {"body": b'{"applicant": null}'}),
    "a list that is none": (400, {"body": b'{"applicants": {"id": "canary@example.com"}}'}),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_refused_is_told_why_and_kept_nowhere(
    spool: Spool, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    status, request = WRONG[what]
    caplog.set_level(logging.DEBUG)
    with receiving(spool, Limits(body_bytes=1000)) as port:
        answered, headers, said = deliver(port, **request)  # type: ignore[arg-type]
    assert answered == status
    assert said["errors"][0]["message"]
    assert headers["connection"] == "close"
    assert ("www-authenticate" in headers) == (status == 401)
    assert spool.waiting() == []
    for secret in (KEY, SECRET_TEXT):
        assert secret not in caplog.text + json.dumps(said)


def test_a_body_of_unknown_length_is_refused(spool: Spool) -> None:
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n\r\n"
    with receiving(spool) as port, socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(head.encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 411 ")


def test_a_large_body_is_refused_unread(spool: Spool) -> None:
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
    with receiving(spool) as port, socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(f"{head}Content-Length: 1000000000000\r\n\r\n".encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_drips_is_given_up(spool: Spool) -> None:
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
    with (
        receiving(spool, Limits(body_seconds=0.1)) as port,
        socket.create_connection(("127.0.0.1", port), timeout=10) as connection,
    ):
        connection.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 408 ")


HEAD = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode()
UNFINISHED = {
    "nothing": b"",
    "half a head": HEAD,
    "a head without a key": HEAD + b"Content-Length: 100\r\n\r\n",
    "half a body without a key": HEAD + b"Content-Length: 100\r\n\r\n{",
    "half a body with a wrong key": HEAD + b"X-API-Key: 0123456789abcdef\r\nContent-Length: 100\r\n\r\n{",
    "half of a second head": HEAD + b"Content-Length: 1\r\n\r\n{" + HEAD,
}


@pytest.fixture
def connect() -> Iterator[Callable[[int, bytes], socket.socket]]:
    """A connection to the port on which this much is sent; it stays open until the test is over."""
    with ExitStack() as opened:

        def connect(port: int, sent: bytes) -> socket.socket:
            connection = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            connection.sendall(sent)
            return connection

        yield connect


@pytest.mark.parametrize("sent", UNFINISHED.values(), ids=UNFINISHED)
def test_unfinished_requests_without_a_key_keep_no_delivery_out(
    spool: Spool, sent: bytes, connect: Callable[[int, bytes], socket.socket]
) -> None:
    with receiving(spool, Limits(waiting=128)) as port:
        for _ in range(3):
            for _ in range(100):
                connect(port, sent)
            assert deliver(port)[0] == 200


def test_a_few_open_files_are_enough_for_deliveries(
    tmp_path: Path, connect: Callable[[int, bytes], socket.socket]
) -> None:
    with command(tmp_path, open_files=128, LEADS_RECEIVE_KEY=KEY) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2].partition("/")[0])
        for _ in range(300):
            connect(port, HEAD)
        assert deliver(port)[0] == 200
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
    assert "out of system resource" not in errors


NGINX = (Path(__file__).parent.parent / "examples" / "nginx.conf").read_text(encoding="utf-8")


def test_a_proxy_as_the_example_has_it_holds_slow_senders_off(spool: Spool, tmp_path: Path) -> None:
    certificate, key = tmp_path / "leads.pem", tmp_path / "leads.key"
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run([*make.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    trusting = ssl.create_default_context(cafile=certificate)
    # One who waits is too many: whatever reached the receiver unfinished would push the delivery out.
    with receiving(spool, Limits(waiting=1, head_seconds=60, body_seconds=60, concurrent=1)) as upstream:

        def here(port: int) -> str:
            mine = {
                "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
                "/etc/ssl/certs/leads.pem": str(certificate),
                "/etc/ssl/private/leads.key": str(key),
                "127.0.0.1:8750": f"127.0.0.1:{upstream}",
            }
            assert all(NGINX.count(theirs) == 1 for theirs in mine)
            return re.sub("|".join(map(re.escape, mine)), lambda found: mine[found[0]], NGINX)

        with running_nginx(tmp_path / "nginx", here) as port, ExitStack() as opened:
            plain = [b"", b"\x16\x03\x01"]  # not even a handshake
            unfinished = [sent for name, sent in UNFINISHED.items() if name != "half of a second head"]
            for sent in [*plain, *unfinished] * 40:
                source = ("127.0.0.2", 0)
                connection = socket.create_connection(("127.0.0.1", port), timeout=20, source_address=source)
                opened.enter_context(connection)
                if sent not in plain:
                    connection = opened.enter_context(trusting.wrap_socket(connection, server_hostname="localhost"))
                connection.sendall(sent)
            for _ in range(3):
                sender = http.client.HTTPSConnection("localhost", port, timeout=10, context=trusting)
                with closing(sender):
                    sender.request("POST", PATH, body=DELIVERY, headers=HEADERS)
                    assert sender.getresponse().status == 200
    assert len(kept(spool)) == 3
    answered = [line.split()[:2] for line in (tmp_path / "nginx" / "access.log").read_text().splitlines()]
    assert [upstream for _, upstream in answered if upstream != "-"] == ["200"] * 3, "no other reached the receiver"
    assert ["503", "-"] in answered, "one address had more at once than it may"


@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + b"Content-Length: 1\r\n\r\n{"], ids=["nothing", "half", "no more"])
def test_a_request_that_does_not_come_is_not_waited_for(
    spool: Spool, sent: bytes, connect: Callable[[int, bytes], socket.socket]
) -> None:
    with receiving(spool, Limits(head_seconds=0.2)) as port:
        connection = connect(port, sent)
        while _received(connection):
            pass


def test_a_head_that_drips_is_given_up(spool: Spool, connect: Callable[[int, bytes], socket.socket]) -> None:
    with receiving(spool, Limits(head_seconds=0.3)) as port:
        connection, began = connect(port, HEAD), time.monotonic()
        with suppress(OSError):  # a reset: the receiver has hung up
            while time.monotonic() - began < 10:
                connection.sendall(b"X-Drop: 1\r\n")
                time.sleep(0.02)
        assert time.monotonic() - began < 10


def test_a_delivery_under_way_may_take_longer_than_a_head(
    spool: Spool, connect: Callable[[int, bytes], socket.socket]
) -> None:
    head = HEAD + f"X-API-Key: {KEY}\r\nContent-Length: {len(DELIVERY)}\r\n\r\n".encode()
    with receiving(spool, Limits(head_seconds=0.2, waiting=1)) as port:
        connection = connect(port, head)
        time.sleep(0.5)
        connect(port, b"")
        connect(port, b"")
        connection.sendall(DELIVERY)
        assert _received(connection).startswith(b"HTTP/1.1 200 ")


def test_a_connection_serves_one_delivery_after_the_other(spool: Spool) -> None:
    with receiving(spool, Limits(head_seconds=30)) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        with closing(connection):
            statuses = []
            for _ in range(5):
                connection.request("POST", PATH, body=DELIVERY, headers=HEADERS)
                answer = connection.getresponse()
                answer.read()
                statuses.append((answer.status, connection.sock is not None))
    assert statuses == [(200, True)] * 5


def _received(connection: socket.socket) -> bytes:
    with suppress(ConnectionResetError):
        return connection.recv(4096)
    return b""


def test_more_deliveries_at_once_than_allowed_are_told_to_come_back(spool: Spool) -> None:
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
    with receiving(spool, Limits(concurrent=1)) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
            slow.sendall(f"{head}Content-Length: {len(DELIVERY)}\r\n\r\n".encode())
            status, headers = 0, dict[str, str]()
            for _ in range(100):  # until the slow one has arrived
                status, headers, _ = deliver(port)
                if status == 503:
                    break
            assert (status, headers["retry-after"]) == (503, "5")
            slow.sendall(DELIVERY)
            assert slow.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert deliver(port)[0] == 200


def test_a_sender_that_hangs_up_frees_its_place(spool: Spool) -> None:
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
    with receiving(spool, Limits(concurrent=1)) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as gone:
            gone.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        for _ in range(100):
            if deliver(port)[0] == 200:
                break
            time.sleep(0.01)
        assert deliver(port)[0] == 200


def test_more_deliveries_than_the_rate_allows_are_told_when_to_come_back(spool: Spool) -> None:
    now = [100.0]
    limits = Limits(per_second=2, burst=3)
    with receiving(spool, limits, clock=lambda: now[0]) as port:
        assert [deliver(port)[0] for _ in range(4)] == [200, 200, 200, 429]
        assert deliver(port)[1]["retry-after"] == "1"
        now[0] += 1
        assert [deliver(port)[0] for _ in range(3)] == [200, 200, 429]
        now[0] += 1000
        assert [deliver(port)[0] for _ in range(4)] == [200, 200, 200, 429]


def test_a_wrong_key_uses_up_nobodys_rate(spool: Spool) -> None:
    with receiving(spool, Limits(burst=1), clock=lambda: 0.0) as port:
        assert {deliver(port, headers={**HEADERS, "Authorization": "Bearer wrong"})[0] for _ in range(5)} == {401}
        assert deliver(port)[0] == 200


# --- keys and secrets -----------------------------------------------------------------------------------------------


def test_keys_are_compared_in_constant_time_and_at_one_length(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []
    real = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return real(one, other)

    monkeypatch.setattr("leads_pipeline.receiver.hmac.compare_digest", compare)
    with receiving(spool) as port:
        statuses = [
            deliver(port, headers={**HEADERS, "Authorization": f"Bearer {given}"})[0] for given in (KEY, "x", KEY * 9)
        ]
    assert statuses == [200, 401, 401]
    assert compared == [(32, 32)] * 3


def test_a_replaced_key_holds_at_once(spool: Spool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    with receiving(spool, key=FileSecret(file)) as port:
        assert deliver(port)[0] == 200
        file.write_text(f"another-{KEY}")
        assert deliver(port)[0] == 401
        file.write_text("short")
        assert deliver(port)[0] == 503
        file.unlink()
        assert deliver(port)[0] == 503
    assert "can't be read" in caplog.text
    assert KEY not in caplog.text


def test_a_short_key_is_refused() -> None:
    assert read_key(StaticSecret("k" * 16)) == "k" * 16
    with pytest.raises(SettingsError, match="fewer than 16"):
        read_key(StaticSecret("k" * 15))


@pytest.mark.parametrize(
    ("error", "status"), [(StorageError("The disk is full."), 503), (RuntimeError(SECRET_TEXT), 500)]
)
def test_what_cannot_be_kept_is_never_answered_200_and_quotes_nothing(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception, status: int
) -> None:
    def add(_self: Spool, _pushed: list[PushedLead]) -> None:
        raise error

    caplog.set_level(logging.DEBUG)
    with receiving(spool) as port:
        with monkeypatch.context() as patched:
            patched.setattr(Spool, "add", add)
            answered, _, said = deliver(port)
        assert answered == status
        assert deliver(port)[0] == 200  # and it goes on
    assert caplog.records
    for secret in (KEY, SECRET_TEXT):
        assert secret not in caplog.text + json.dumps(said)


# --- killed at random -----------------------------------------------------------------------------------------------

_RECEIVER = """
import sys
from pathlib import Path
from leads_pipeline.credentials import StaticSecret
from leads_pipeline.lake import Lake
from leads_pipeline.receiver import Limits, Receiver, serve
from leads_pipeline.spool import Spool
folder, port, key = sys.argv[1:]
limits = Limits(per_second=100000, burst=100000)
serve(Receiver(Spool(Lake(Path(folder))), StaticSecret(key), limits), "127.0.0.1", int(port), limits, print)
"""


class KilledReceiver:
    """A receiver in a process of its own, that is killed and started again at random until the block ends."""

    def __init__(self, folder: Path, seed: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.kills = 0
        self._command = [sys.executable, "-u", "-c", _RECEIVER, str(folder), str(self.port), KEY]
        self._rng = random.Random(seed)  # noqa: S311 - when to kill is no secret
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "KilledReceiver":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.is_set():
            process = subprocess.Popen(self._command, stdout=subprocess.PIPE)
            assert process.stdout is not None
            process.stdout.readline()  # it listens
            self._is_over.wait(self._rng.uniform(0.05, 1.0))
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
            self.kills += 1


def deliver_until_answered(port: int, numbers: Iterator[int], answered: list[int]) -> None:
    """One sender: each lead is sent again until it is answered 200, and never afterwards."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        for number in numbers:
            lead = {
                "id": f"lead-{number}",
                "createdAt": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
                "portalBranchId": "101",
            }
            body = json.dumps({"applicant" if number % 4 else "appraisal": lead})
            while not is_answered(connection, body):
                time.sleep(0.01)
            answered.append(number)


def is_answered(connection: http.client.HTTPConnection, body: str) -> bool:
    """Whether the delivery got its 200; a connection that broke is opened again by the next one."""
    try:
        connection.request("POST", PATH, body=body, headers=HEADERS)
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        connection.close()
        return False
    return answer.status == 200


class Numbers:
    """0, 1, 2, … for several threads."""

    def __init__(self, count: int) -> None:
        self._numbers = iter(range(count))
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[int]:
        while True:
            with self._lock:
                number = next(self._numbers, None)
            if number is None:
                return
            yield number


def push_through_kills(folder: Path, count: int, senders: int) -> int:
    """Deliver while the receiver is killed and the pipeline takes in; what was answered 200 must be in the warehouse.

    Returns how often the receiver was killed.
    """
    lake = Lake(folder)
    first_day = today(LONDON, datetime.now(UTC))
    placement = Placement(SCOPES, LONDON, first_day)
    numbers, answered = Numbers(count), list[int]()
    with KilledReceiver(folder, seed=count) as receiver:
        threads = [
            threading.Thread(target=deliver_until_answered, args=(receiver.port, iter(numbers), answered))
            for _ in range(senders)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            list(Spool(lake).take_in(placement, "run-1"))
            time.sleep(0.1)
    list(Spool(lake).take_in(placement, "run-2"))
    for kind in (APPLICANT, APPRAISAL):
        for day in {first_day, today(LONDON, datetime.now(UTC))}:
            flatten_day(lake, kind, day, LONDON)
    Warehouse(lake).publish(Grid(SCOPES, first_day, LONDON), datetime.now(UTC))

    assert sorted(answered) == list(range(count))
    with duckdb.connect(Warehouse(lake).path, read_only=True) as db:
        there = db.execute("select lead_id from applicant_leads union all select lead_id from appraisal_leads")
        assert sorted(lead_id for (lead_id,) in there.fetchall()) == sorted(f"lead-{number}" for number in answered)
    return receiver.kills


@pytest.mark.chaos
def test_what_was_answered_200_is_in_the_warehouse_once_although_the_receiver_was_killed(tmp_path: Path) -> None:
    assert push_through_kills(tmp_path, 200, senders=4) >= 1


@pytest.mark.chaos
def test_ten_thousand_deliveries_through_many_kills_are_in_the_warehouse_once(tmp_path: Path) -> None:
    assert push_through_kills(tmp_path, 10_000, senders=8) >= 10


# --- the command ----------------------------------------------------------------------------------------------------


@contextmanager
def command(folder: Path, *options: str, open_files: int = 1024, **variables: str) -> "Iterator[subprocess.Popen[str]]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LEADS_")}
    environment |= {"LEADS_DATA_DIR": str(folder / "data"), **variables}
    receive = f"{shlex.quote(str(Path(sys.executable).with_name('leads-pipeline')))} receive --port 0 "
    receive += shlex.join(options)
    with subprocess.Popen(
        ["sh", "-c", f"ulimit -n {open_files}; exec {receive}"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()  # where the test hasn't ended it


def test_the_command_receives_until_it_is_told_to_stop_and_counts_what_it_answers(tmp_path: Path) -> None:
    metrics = free_port()
    with command(tmp_path, "--metrics-port", str(metrics), LEADS_RECEIVE_KEY=KEY) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        match = re.search(r"http://127\.0\.0\.1:(\d+)/leads", said)
        assert match is not None, said
        before = httpx.get(f"http://127.0.0.1:{metrics}/metrics").text
        status = deliver(int(match.group(1)))[0]
        refused = deliver(int(match.group(1)), body=b"x")[0]
        assert deliver(int(match.group(1)), headers={})[0] == 401
        counted = httpx.get(f"http://127.0.0.1:{metrics}/metrics").text
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=20)
    assert (status, refused) == (200, 400)
    guide = (Path(__file__).parents[1] / "docs" / "operate.md").read_text(encoding="utf-8")
    refusals = [line for line in guide.splitlines() if "want something put right first" in line]
    answers = ["200", *sorted(re.findall(r"\b[45]\d\d\b", "".join(refusals)))]
    # Prometheus sees an increase between two samples alone.
    for text, counts in ((before, {}), (counted, dict.fromkeys(("200", "400", "401"), 1))):
        assert re.findall(r"^leads_pipeline_(\w+_total\S* \S+)$", text, re.MULTILINE) == [
            *(f'deliveries_total{{answer="{answer}"}} {counts.get(answer, 0)}.0' for answer in answers),
            f"pushed_leads_total {len(counts) and 1}.0",
        ]
    assert kept(Spool(Lake(tmp_path / "data"))) == [DELIVERY[15:-2].decode()]
    assert KEY not in said + rest + errors
    assert SECRET_TEXT not in said + rest + errors


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "Set either LEADS_RECEIVE_KEY or LEADS_RECEIVE_KEY_FILE"),
        ({"LEADS_RECEIVE_KEY": "short-key"}, "fewer than 16 characters"),
    ],
)
def test_the_command_does_not_start_without_a_key(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    variables: dict[str, str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("LEADS_")]:
        monkeypatch.delenv(name)
    result = CliRunner().invoke(
        cli.main, ["receive", "--port", "0"], env={"LEADS_DATA_DIR": str(tmp_path), **variables}
    )
    assert result.exit_code == 2
    shown = re.sub(r"\s+", " ", result.output + capfd.readouterr().err)
    assert said in shown
    assert "short-key" not in shown

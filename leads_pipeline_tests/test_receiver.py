import asyncio
import hmac
import http.client
import json
import logging
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
import uvicorn

from leads_pipeline import receiver as receiver_module
from leads_pipeline.contract import APPLICANT, APPRAISAL, PushedLead
from leads_pipeline.credentials import FileSecret, SecretSource, StaticSecret
from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.flatten import flatten_day
from leads_pipeline.lake import Lake
from leads_pipeline.receiver import PATH, Limits, Receiver, read_key
from leads_pipeline.spool import Placement, Spool
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope, today
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
    app = Receiver(spool, key or StaticSecret(KEY), limits or Limits(), clock=clock).app()
    config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
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
    may_write, writes = threading.Event(), []
    real = Spool.add

    def add(self: Spool, pushed: list[PushedLead]) -> None:
        writes.append(len(pushed))
        assert may_write.wait(10)
        real(self, pushed)

    monkeypatch.setattr(Spool, "add", add)
    answers: list[int] = []
    with receiving(spool) as port:
        threads = [threading.Thread(target=lambda: answers.append(deliver(port)[0])) for _ in range(12)]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        assert answers == []
        may_write.set()
        for thread in threads:
            thread.join(10)
    assert answers == [200] * 12
    # Those that came while the disk was busy went together.
    assert sum(writes) == 12
    assert len(writes) <= 3


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


def test_more_deliveries_at_once_than_allowed_are_told_to_come_back(spool: Spool) -> None:
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
    with receiving(spool, Limits(concurrent=1)) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
            slow.sendall(f"{head}Content-Length: {len(DELIVERY)}\r\n\r\n".encode())
            status, headers = 0, {}
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

    monkeypatch.setattr(receiver_module.hmac, "compare_digest", compare)
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

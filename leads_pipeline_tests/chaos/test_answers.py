"""Answers that are none, answers that break off, and odd leads in good ones, over real sockets to the end."""

import gzip
import json
import socket
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from leads_pipeline.domain.contract import APPLICANT, LEAD_KINDS
from leads_pipeline.errors import (
    CredentialsError,
    InvalidAnswerError,
    LeadsPipelineError,
    RefusedError,
    ServerError,
    UnreachableError,
)
from leads_pipeline.portal import RetryPolicy
from leads_pipeline.simulator.app import Config
from leads_pipeline.simulator.faults import Rule, Then, When
from leads_pipeline.simulator.server import RunningSimulator, running
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.raw import place_of
from leads_pipeline.transform.reading import LeadsFile
from leads_pipeline_tests.chaos.way import (
    ATTEMPTS,
    DAY,
    answering,
    assert_all_landed_once,
    child,
    connect,
    failures,
    listening,
    odd_input,
    publish,
    pull,
    raw_bytes,
    raw_rows,
    window,
)
from leads_pipeline_tests.support.raw_server import HEAD, Script, bomb, drip, gzipped, raw, respond

WINDOW, NEIGHBOUR, OTHER_DAY = window(), window("branch-102"), window(day=DAY - timedelta(days=1))


@pytest.fixture(scope="module")
def simulator() -> Iterator[RunningSimulator]:
    with running(Config(branches=2, leads_per_day=60)) as simulator:
        yield simulator


@pytest.fixture
def portal(simulator: RunningSimulator) -> RunningSimulator:
    simulator.set_faults([])
    simulator.reset_counters()
    return simulator


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    return DataFolder.at(tmp_path / "data")


def names(cases: Sequence[tuple[Any, ...]]) -> list[str]:
    return [f"{case[0]} {number}" for number, case in enumerate(cases, start=1)]


# --- bad answers of the simulator ---------------------------------------------------------------------------------


def wrong(body: str) -> Then:
    return Then(status=200, body=body)


NO_ANSWERS = [
    ("empty object", wrong("{}"), InvalidAnswerError, "list missing"),
    ("null list", wrong('{"applicants": null, "appraisals": null}'), InvalidAnswerError, "list missing"),
    ("204", Then(status=204), InvalidAnswerError, "invalid answer (204)"),
    ("empty 200", wrong(""), InvalidAnswerError, "empty body"),
    ("empty 200", wrong(" \r\n"), InvalidAnswerError, "empty body"),
    ("wrong type", wrong("[]"), InvalidAnswerError, "not a JSON object"),
    ("wrong type", wrong('[{"id": "a"}]'), InvalidAnswerError, "not a JSON object"),
    ("wrong type", wrong("null"), InvalidAnswerError, "not a JSON object"),
    ("wrong type", wrong('"applicants"'), InvalidAnswerError, "not a JSON object"),
    ("wrong type", wrong('{"applicants": {}, "appraisals": {}}'), InvalidAnswerError, "list missing"),
    ("wrong type", wrong('{"applicants": "[]", "appraisals": "[]"}'), InvalidAnswerError, "list missing"),
    ("wrong type", wrong('{"applicants": 0, "appraisals": 0}'), InvalidAnswerError, "list missing"),
    ("error object with 200", wrong('{"errors": [{"code": "internal_error"}]}'), InvalidAnswerError, "list missing"),
    ("HTML with 200", wrong("<html>Please sign in.</html>"), InvalidAnswerError, "not a JSON object"),
]


@pytest.mark.parametrize(("fault", "then", "error", "reason"), NO_ANSWERS, ids=names(NO_ANSWERS))
def test_what_is_no_answer_lands_nothing_and_costs_nothing(
    portal: RunningSimulator,
    data: DataFolder,
    fault: str,
    then: Then,
    error: type[LeadsPipelineError],
    reason: str,
) -> None:
    client, _ = connect(portal.environment(), data)
    for kind in LEAD_KINDS:
        assert failures(pull(client, data, [WINDOW], kind)) == []
        before = raw_bytes(data)
        portal.reset_counters()
        portal.set_faults([Rule(then, When(path=kind.path, scope="branch-101"), fault)])

        outcomes = pull(client, data, [WINDOW, NEIGHBOUR, OTHER_DAY], kind)

        assert [(type(one), one.reason) for one in failures(outcomes)] == [(error, reason)] * 2
        assert all(f"({ATTEMPTS} attempts)" in str(one) for one in failures(outcomes))
        assert portal.counters().faults[fault] == 2 * ATTEMPTS
        new = raw_bytes(data).keys() - before.keys()
        assert raw_bytes(data).items() >= before.items()
        assert [path.parent for path in new] == [data.folder / place_of(kind, NEIGHBOUR).key]

        portal.reset_counters()
        portal.set_faults([Rule(then, When(path=kind.path, scope="branch-101", first=1, per_window=True), fault)])
        assert failures(pull(client, data, [WINDOW, NEIGHBOUR, OTHER_DAY], kind)) == []
        assert portal.counters().faults[fault] == 2
        assert_all_landed_once(portal, data, [WINDOW, NEIGHBOUR, OTHER_DAY], kind)


@pytest.mark.parametrize(
    ("status", "error", "attempts"),
    [
        (301, RefusedError, 1),
        (302, ServerError, ATTEMPTS),
        (303, ServerError, ATTEMPTS),
        (307, ServerError, ATTEMPTS),
        (308, RefusedError, 1),
    ],
)
def test_a_redirect_to_another_host_is_told_and_never_followed(
    portal: RunningSimulator,
    data: DataFolder,
    status: int,
    error: type[LeadsPipelineError],
    attempts: int,
) -> None:
    client, _ = connect(portal.environment(), data)
    assert failures(pull(client, data, [WINDOW])) == []
    before = raw_rows(data, column="payload")
    with listening() as thief:
        thief.script = respond(b'{"applicants":[{"id":"theirs"}],"access_token":"theirs","token_type":"Bearer"}')
        for path in ("/applicant-leads", "/oauth2/token"):
            away = Then(status=status, headers={"location": f"{thief.url}{path}"})
            portal.set_faults([Rule(away, When(path=path), path)])
            elsewhere = DataFolder.at(data.folder.parent / path.replace("/", "-"))  # with no token yet
            for one in (data, elsewhere):
                outcomes = pull(connect(portal.environment(), one)[0], one, [WINDOW])
                if path == "/applicant-leads":
                    assert [type(failure) for failure in failures(outcomes)] == [error]
            if path == "/oauth2/token":
                [failure] = failures(outcomes)
                assert (type(failure), failure.reason) == (CredentialsError, "credentials")
        sent = portal.counters().faults
        assert sent["/applicant-leads"] == 2 * attempts
        assert sent["/oauth2/token"] == 1
        assert (thief.connections, thief.requests) == (0, [])
    assert raw_rows(data, column="payload") == before


# --- bad answers that only a bare socket can give -----------------------------------------------------------------


def body_of(*leads: str | bytes) -> bytes:
    texts = [lead.encode() if isinstance(lead, str) else lead for lead in leads]
    return b'{"applicants":[' + b",".join(texts) + b"]}"


BODY = body_of(*(f'{{"id":"{number}","message":"caf\u00e9 {number}"}}' for number in range(500)))
GZIP = "Content-Encoding: gzip"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"

WRECKS: list[tuple[str, Script, type[LeadsPipelineError], str]] = [
    ("cut off with Content-Length", respond(BODY[:-1], length=len(BODY)), UnreachableError, "connection broken"),
    ("cut off with Content-Length", respond(b"", length=len(BODY)), UnreachableError, "connection broken"),
    ("cut off without Content-Length", raw(HEAD + b"\r\n" + BODY[:-1]), InvalidAnswerError, "broken JSON"),
    ("cut off without Content-Length", raw(HEAD + b"\r\n" + BODY[:-2]), InvalidAnswerError, "broken JSON"),
    ("cut off without Content-Length", raw(HEAD + b"\r\n" + BODY[:5000]), InvalidAnswerError, "broken JSON"),
    ("cut off without Content-Length", raw(CHUNKED + b"400\r\n" + BODY[:99]), UnreachableError, "connection broken"),
    (
        "reset in the middle",
        raw(HEAD + b"Content-Length: 99\r\n\r\n{", reset=True),
        UnreachableError,
        "connection broken",
    ),
    ("reset in the middle", raw(b"", reset=True), UnreachableError, "connection broken"),
    ("cut off gzip", respond(gzipped(BODY)[:-1], GZIP), InvalidAnswerError, "broken gzip"),
    ("cut off gzip", respond(gzipped(BODY)[:-8], GZIP), InvalidAnswerError, "broken gzip"),
    ("cut off gzip", respond(gzipped(BODY)[:200], GZIP), InvalidAnswerError, "broken gzip"),
    ("cut off gzip", respond(gzipped(BODY)[:5], GZIP), InvalidAnswerError, "broken gzip"),
    ("cut off gzip", respond(gzipped(BODY[:9]) + gzipped(BODY[9:])[:-1], GZIP), InvalidAnswerError, "broken gzip"),
    ("cut off gzip", respond(b"", GZIP), InvalidAnswerError, "empty body"),
    ("wrong charset", respond(BODY.decode().encode("utf-16")), InvalidAnswerError, "not a JSON object"),
    ("wrong charset", respond(BODY.decode().encode("utf-16-be")), InvalidAnswerError, "not a JSON object"),
    ("wrong charset", respond(BODY.decode().encode("utf-32")), InvalidAnswerError, "not a JSON object"),
    ("wrong charset", respond(BODY.decode().encode("cp037", "replace")), InvalidAnswerError, "not a JSON object"),
    ("empty 200", raw(HEAD + b"\r\n"), InvalidAnswerError, "empty body"),
    ("drip-fed body", drip(BODY), UnreachableError, "deadline passed"),
]


@pytest.mark.parametrize(("wreck", "error", "reason"), [case[1:] for case in WRECKS], ids=names(WRECKS))
def test_a_wreck_of_an_answer_lands_nothing_and_is_asked_for_again(
    portal: RunningSimulator,
    data: DataFolder,
    wreck: Script,
    error: type[LeadsPipelineError],
    reason: str,
) -> None:
    # What is too slow twice is asked for by hours, each twice, until three have failed.
    deadline, times = (0.5, 2 + 3 * 2) if reason == "deadline passed" else (30.0, ATTEMPTS)
    with listening() as server:
        client, _ = connect({**portal.environment(), "LEADS_BASE_URL": server.url}, data, deadline_seconds=deadline)
        # The first five hundred, then nothing, then all and one more.
        more = body_of('{"id":"new"}') + b"\n"
        scripts = iter([respond(gzipped(BODY), GZIP), *[wreck] * times, wreck, respond(more)])
        server.script = lambda connection: next(scripts)(connection)
        assert failures(pull(client, data, [WINDOW])) == []
        before = raw_bytes(data)

        [failure] = failures(pull(client, data, [WINDOW]))

        assert (type(failure), failure.reason) == (error, reason)
        assert raw_bytes(data) == before
        assert failures(pull(client, data, [WINDOW])) == []
        assert len(server.requests) == 1 + times + 2
    assert sorted(raw_rows(data)) == sorted([*map(str, range(500)), "new"])


MEASURED = """
import json, re, sys
from pathlib import Path
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline_tests.chaos.way import connect, failures, pull, raw_bytes, window

def peak_bytes():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

data = DataFolder.at(Path(sys.argv[2]))
client, _ = connect(json.loads(sys.argv[1]), data, max_concurrency=1)
assert failures(pull(client, data, [window()])) == []
before, landed = peak_bytes(), raw_bytes(data)
[failure] = failures(pull(client, data, [window()]))
assert raw_bytes(data) == landed
print(json.dumps([type(failure).__name__, failure.reason, str(failure), peak_bytes() - before]))
"""


def flood(head: bytes, piece: bytes, times: int, sent: list[int]) -> Script:
    def script(connection: socket.socket) -> None:
        sent.append(0)
        connection.sendall(head)
        for _ in range(times):
            connection.sendall(piece)
            sent[-1] += len(piece)
        connection.shutdown(socket.SHUT_WR)

    return script


PADDED = b'{"applicants":[{"id":"a"}],"pad":"'
MIB = b"x" * 2**20
FLOODS = [
    ("200 MB body", HEAD + b"Content-Length: 209715234\r\n\r\n" + PADDED, MIB, 200),
    ("200 MB body", HEAD + b"\r\n" + PADDED, MIB, 200),
    ("gzip bomb", HEAD + GZIP.encode() + b"\r\n\r\n", bomb(1000), 1),
    ("gzip bomb", HEAD + GZIP.encode() + b"\r\n\r\n", gzip.compress(b" " * 2**20) * 1000, 1),
]


@pytest.mark.parametrize(("head", "piece", "times"), [case[1:] for case in FLOODS], ids=names(FLOODS))
def test_a_flood_is_cut_short_before_it_fills_the_memory(
    portal: RunningSimulator,
    data: DataFolder,
    head: bytes,
    piece: bytes,
    times: int,
) -> None:
    sent: list[int] = []
    with listening() as server:
        scripts = chain([respond(BODY)], repeat(flood(head, piece, times, sent)))
        server.script = lambda connection: next(scripts)(connection)
        variables = {**portal.environment(), "LEADS_BASE_URL": server.url}
        process = child(MEASURED, json.dumps(variables), str(data.folder))
        output, errors = process.communicate(timeout=120)
    assert errors == ""
    kind, reason, message, grown_bytes = json.loads(output)
    assert (kind, reason) == ("TooLargeError", "body too large")
    assert "more than the 64 MiB that an answer may have" in message
    assert "What was landed before stays" in message
    assert len(sent) == 1 + 3  # three hours of the window, once each
    assert all(count <= 100 * 2**20 for count in sent)
    # 64 MB may be held; another copy of it, or the rest of the flood, may not.
    assert grown_bytes < 110 * 2**20


# --- odd leads in good answers ------------------------------------------------------------------------------------

ORDINARY = (
    '{"id":"neighbour-%d","createdAt":"2026-01-02T10:00:00Z","contact":{"firstName":"Ann"},'
    '"listingDetails":{"pricing":{"price":250000.10}}}'
)


def assert_kept_exactly(data: DataFolder, elements: Sequence[bytes]) -> None:
    """What was sent is what is landed, byte for byte."""
    assert sorted(payload.encode() for payload in raw_rows(data, column="payload")) == sorted(elements)


def assert_neighbours_are_whole(file: LeadsFile, count: int) -> None:
    [(whole,)] = file.query(
        """
        select count(*) from applicant_leads
        where starts_with(lead_id, 'neighbour-') and contact_first_name = 'Ann' and len(_problems) = 0
            and listing_details_pricing_price = 250000.10 and created_at = '2026-01-02T10:00:00Z' and _extra is null
        """
    )[1]
    assert whole == count


def test_each_case_of_the_json_test_suite_is_kept_or_told(data: DataFolder) -> None:
    cases = {case["name"]: case["input"].encode() for case in odd_input("suite")}
    assert len(cases) > 300
    sent: list[str] = []
    kept: dict[str, bytes] = {}

    def lead(name: str) -> bytes:
        return b'{"id":"%b","message":"m","new":%b}' % (name.encode(), cases[name])

    def answer(_: str, parameters: dict[str, str]) -> tuple[int, bytes]:
        name = list(cases)[int(parameters["branch-id"])]
        sent.append(name)
        return 200, body_of(ORDINARY % 0, lead(name), ORDINARY % 1)

    with answering(answer) as (_, variables):
        client, _auth = connect(variables, data, policy=RetryPolicy(max_attempts=1))
        windows = [window(f"branch-{number}") for number in range(len(cases))]
        for one, outcome in client.fetch_windows(APPLICANT, windows, lambda answer: answer):
            name = list(cases)[int(one.scope.id)]
            if isinstance(outcome, LeadsPipelineError):
                # Text whose brackets or quotes don't match has no end, and with it the whole answer.
                assert (type(outcome), outcome.reason) == (InvalidAnswerError, "broken JSON")
                assert name.startswith(("n_", "i_string_UTF-16")), name
                continue
            first, *odd, last = outcome.leads
            assert (first.payload, last.payload) == (ORDINARY % 0, ORDINARY % 1)
            if name.startswith("y_"):
                assert [(one.payload.encode(), one.oddity) for one in odd] == [(lead(name), None)]
            if [one.payload.encode() for one in odd] == [lead(name)]:
                kept[name] = lead(name)
    assert sorted(sent) == sorted(cases)
    assert {name for name in cases if name.startswith("y_")} <= kept.keys()

    elements = [*kept.values(), *((ORDINARY % number).encode() for number in range(5))]
    with answering(lambda *_: (200, body_of(*elements))) as (_, variables):
        assert failures(pull(connect(variables, data)[0], data, [WINDOW])) == []
    assert_kept_exactly(data, elements)
    file = publish(data)
    assert_neighbours_are_whole(file, 5)
    rows = file.query(
        """
        select lead_id, message, _extra is not null or len(_problems) > 0 from applicant_leads
        where not starts_with(lead_id, 'neighbour-')
        """
    )[1]
    assert {row[0] for row in rows} == kept.keys()
    assert [row for row in rows if not row[2]] == []
    assert [row for row in rows if row[0].startswith("y_") and row[1] != "m"] == []

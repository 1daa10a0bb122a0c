"""Open faults at the portal: answers, tokens, secrets and settings. See the package for how the marks are used."""

import gzip
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from leads_pipeline_tests.faults import command
from leads_pipeline_tests.faults.conftest import Install, installed
from leads_pipeline_tests.promises.portal import portal
from leads_pipeline_tests.support.raw_server import RawServer, respond, unknown_authority

YESTERDAY = datetime.now(UTC).date() - timedelta(days=1)
NOBODY = "http://127.0.0.1:9"  # nothing listens there

# --- answers ----------------------------------------------------------------------------------------------------------

A, B = '{"id":"a-%s"}', '{"id":"b-%s"}'
# Answers that hold more lists than one, or speak of more leads than came, by branch. Both days have the same leads.
ANSWERS = {
    "101": f'{{"applicants":[{A}],"\\u0061pplicants":[{B}]}}',
    "102": f'{{"applicants":[{A},{B}],"total":3}}',
    "103": f'{{"applicants":[{A},{B}],"nextPage":"/applicant-leads?page=2"}}',
}


@dataclass(frozen=True)
class Pulled:
    """What came of a pull of two days of these answers."""

    text: str
    published: set[str]
    not_landed: set[str]  # branches
    in_another_zone: dict[str, tuple[str, str]]  # what `doctor` finds once LEADS_TIMEZONE is changed


@pytest.fixture(scope="module")
def pulled(tmp_path_factory: pytest.TempPathFactory) -> Pulled:
    def answers(_: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
        branch = parameters["branch-id"]
        return 200, ANSWERS[branch].replace("%s", branch).encode()

    with pytest.MonkeyPatch.context() as patch, portal(answers) as address:
        installed(patch, tmp_path_factory.mktemp("pulled"), address, LEADS_BRANCH_IDS=",".join(ANSWERS))
        days = ("--from", YESTERDAY - timedelta(days=1), "--to", YESTERDAY)
        text = command("backfill", *days, "--kind", "applicant").text
        with duckdb.connect("data/leads.duckdb", read_only=True) as db:
            published = {lead_id for (lead_id,) in db.execute("select lead_id from applicant_leads").fetchall()}
        windows = command("coverage", "--json", "--days", 2).json["not_landed"]
        not_landed = {one["partition"].split("-")[-1] for one in windows if one["kind"] == "applicant"}
        patch.setenv("LEADS_TIMEZONE", "Europe/London")
        return Pulled(text, published, not_landed, command("doctor", "--json").findings())


def test_a_list_counts_in_every_spelling_of_its_key(pulled: Pulled) -> None:
    assert {"a-101", "b-101"} <= pulled.published


@pytest.mark.parametrize("branch", ["102", "103"])
def test_an_answer_that_speaks_of_more_leads_is_landed_and_fails_its_window(pulled: Pulled, branch: str) -> None:
    assert {f"a-{branch}", f"b-{branch}"} <= pulled.published
    assert branch in pulled.not_landed


def test_backfill_counts_a_lead_of_two_windows_once(pulled: Pulled) -> None:
    assert f"It holds {len(pulled.published)} leads." in pulled.text


def test_doctor_explains_that_landed_days_are_of_another_time_zone(pulled: Pulled) -> None:
    assert any("LEADS_TIMEZONE" in message and light != "green" for light, message in pulled.in_another_zone.values())


# --- tokens -----------------------------------------------------------------------------------------------------------

TOKEN = b'{"access_token":"t","expires_in":60,"token_type":"Bearer"}'


@pytest.fixture
def server() -> Iterator[RawServer]:
    with closing(RawServer()) as server:
        yield server


def token_finding(server: RawServer, install: Install) -> tuple[str, str]:
    install(server.url)
    return command("doctor", "--json").findings()["token"]


@pytest.mark.parametrize(
    ("status", "headers", "body", "cause"),
    [
        (200, [], b'{"error": "invalid_client"}', "invalid_client"),
        (200, ["Content-Type: text/html"], b"<html>Sign in</html>", "HTML"),
        (302, ["Location: /login"], b"", "redirect"),
        (200, [], b'{"access_token": "t", "token_type": "mac"}', "not a bearer token"),
    ],
)
def test_a_token_answer_that_waiting_does_not_change_is_refused_once(
    server: RawServer, install: Install, status: int, headers: list[str], body: bytes, cause: str
) -> None:
    server.script = respond(body, *headers, "Connection: close", status=status)
    light, message = token_finding(server, install)
    assert light == "red"
    assert cause in message
    assert "tried again" not in message


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (200, [], TOKEN.replace(b"Bearer", b"BearerToken")),
        (200, ["Content-Encoding: identity"], TOKEN),
        (200, ["Content-Encoding: gzip"], gzip.compress(TOKEN, mtime=0)),
        (201, [], TOKEN),
    ],
)
def test_a_token_is_taken_however_it_is_packed(
    server: RawServer, install: Install, status: int, headers: list[str], body: bytes
) -> None:
    server.script = respond(body, *headers, "Connection: close", status=status)
    light, message = token_finding(server, install)
    assert light == "green", message


def test_an_unknown_certificate_authority_is_named(install: Install, tmp_path: Path) -> None:
    with closing(RawServer(unknown_authority(tmp_path))) as https:
        install(https.url)
        _, message = command("doctor", "--json").findings()["token"]
    assert "SSL_CERT_FILE" in message


def test_the_documents_name_the_variable_for_certificates() -> None:
    root = Path(__file__).parents[2]
    texts = [path.read_text(encoding="utf-8") for path in [*root.glob("docs/**/*.md"), root / ".env.example"]]
    assert any("SSL_CERT_FILE" in text for text in texts)

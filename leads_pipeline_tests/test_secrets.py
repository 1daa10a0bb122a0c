"""Secrets and personal data: a revoked secret, and no trace of either where it doesn't belong."""

import base64
import json
import os
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pytest

from leads_pipeline.client import LeadsClient
from leads_pipeline.contract import APPLICANT, LEAD_KINDS, Answer, PushedLead, ReceivedLead
from leads_pipeline.definitions import PUSH_JOB
from leads_pipeline.errors import CredentialsError, LeadsPipelineError
from leads_pipeline.resources import DataFolder, LeadsService
from leads_pipeline.spool import Spool
from leads_pipeline.window import Scope, ScopeKind, Window
from leads_pipeline_tests.support.gpg import needs_gpg, running_gpg
from leads_pipeline_tests.support.installation import installation
from leads_pipeline_tests.support.small_portal import CLIENT_ID, SmallPortal, served

OLD = "the-old-secret"


@pytest.fixture
def portal() -> Iterator[SmallPortal]:
    with served(SmallPortal(OLD)) as portal:
        yield portal


def service(portal: SmallPortal, folder: Path, **secret: Any) -> LeadsService:
    return LeadsService(
        data=DataFolder(path=str(folder / "data")),
        base_url=portal.base_url,
        auth_url=portal.base_url,
        client_id=CLIENT_ID,
        audience=portal.base_url,
        **secret,
    )


def windows(number: int) -> list[Window]:
    yesterday = (datetime.now(UTC) - timedelta(days=1)).date()
    one = Window.of(yesterday, Scope(ScopeKind.ALL), ZoneInfo("UTC"))
    return [replace(one, scope=Scope(ScopeKind.BRANCH, str(branch))) for branch in range(number)]


def outcomes(client: LeadsClient, number: int = 1) -> list[Answer | LeadsPipelineError]:
    return [outcome for _, outcome in client.fetch_windows(APPLICANT, windows(number))]


def test_a_revoked_pair_is_one_clear_error_and_one_token_request_for_200_windows(
    portal: SmallPortal, tmp_path: Path
) -> None:
    client, _ = service(portal, tmp_path, client_secret=OLD).connect()
    assert isinstance(outcomes(client)[0], Answer)
    portal.revoke()
    found = outcomes(client, 200)
    assert len(found) == 200
    for error in found:
        assert isinstance(error, CredentialsError)
        assert error.reason == "credentials"
        assert not error.is_transient
        assert "may have been revoked or replaced: ask the portal's technical contact for a new one" in str(error)
        assert OLD not in str(error)
    assert portal.token_requests == [OLD] * 2  # the one that was good, and one refusal
    assert len(portal.data_requests) <= 1 + 8  # those in flight together found out


def test_a_pair_that_was_never_good_asks_for_a_token_once_and_for_no_lead(portal: SmallPortal, tmp_path: Path) -> None:
    client, _ = service(portal, tmp_path, client_secret="never-good").connect()
    found = outcomes(client, 200)
    assert len(found) == 200
    assert {type(error) for error in found} == {CredentialsError}
    assert portal.token_requests == ["never-good"]
    assert portal.data_requests == []


def test_the_next_run_takes_the_secret_that_replaces_a_revoked_one(portal: SmallPortal, tmp_path: Path) -> None:
    here = {**portal.environment(), "LEADS_BRANCH_IDS": "101", "LEADS_CLIENT_SECRET": ""}
    here |= {"LEADS_CLIENT_SECRET_FILE": str(tmp_path / "secret"), "LEADS_DATA_DIR": str(tmp_path / "data")}
    yesterday = str((datetime.now(UTC) - timedelta(days=1)).date())
    command = [str(Path(sys.executable).with_name("leads-pipeline")), "backfill", "--from", yesterday]
    codes = []
    for theirs, ours in ((OLD, OLD), ("the-new-one", OLD), ("the-new-one", "the-new-one")):
        if theirs != portal.secret:
            portal.revoke()
            portal.secret = theirs
        (tmp_path / "secret").write_text(ours)
        environment = {"PATH": os.defpath, "HOME": str(tmp_path), **here}
        ended = subprocess.run([*command, "--to", yesterday], env=environment, cwd=tmp_path, capture_output=True)
        codes.append(ended.returncode)
    assert codes == [0, 1, 0]


# --- nothing leaks ----------------------------------------------------------------------------------------------------

# Letters and digits, so that no encoding of URLs, JSON or forms hides them from the search.
SECRET, TOKEN, PASSPHRASE = "canarySecret5e7d", "canaryToken9a21", "canaryPassphrase33f0"
WRONG_SECRET, WRONG_PASSPHRASE = "canaryWrongSecret8c4b", "canaryWrongPassphrase71aa"
EMAIL, PHONE, MESSAGE = "canaryemail77@person.example", "07700900077", "canaryMessage0b6e"
CREDENTIALS = (SECRET, TOKEN, PASSPHRASE, WRONG_SECRET, WRONG_PASSPHRASE)
# A name as a programmer might give one, for it to stand where a field's or a member's name is due.
PERSON = "canaryPerson4d1c"
PERSONAL = (EMAIL, PHONE, MESSAGE, PERSON)


class CanaryAnswers:
    """Leads and errors that are full of canaries: branch 101 answers, 102 only at the third time, 103 never."""

    def __init__(self) -> None:
        self.asked: Counter[tuple[str, str]] = Counter()

    def __call__(self, path: str, parameters: dict[str, str]) -> tuple[int, bytes]:
        branch = parameters.get("branch-id", "")
        self.asked[path, branch] += 1
        said = f"{MESSAGE} {EMAIL} {PHONE}"
        if branch == "103":
            return 400, json.dumps(
                {"errors": [{"code": EMAIL, "message": said, "links": [said]}], "title": PHONE}
            ).encode()
        if branch == "102" and self.asked[path, branch] == 1:
            return 200, b'{"applicants": [{"id": "1", "message": "' + said.encode() + b'"'
        if branch == "102" and self.asked[path, branch] == 2:
            return 500, f"<html><title>{EMAIL}</title>{said}</html>".encode()
        contact = {"firstName": MESSAGE, "email": EMAIL, "phoneNumber": PHONE}
        leads: list[object] = [
            {"id": f"{branch}-1", "createdAt": "2026-01-01T10:00:00Z", "contact": contact, "message": said},
            # Values of no declared type, unknown fields, no id, and no lead at all.
            {
                "id": f"{branch}-2",
                "createdAt": EMAIL,
                "isOverseas": PHONE,
                "contact": said,
                "unheardOf": {PHONE: EMAIL},
            },
            {"contact": contact, "propertyPreferences": said, "viewingTimes": said},
            said,
            # A person's name and address as names of fields, once and twice, at every depth, and as members.
            {
                "id": f"{branch}-3",
                PERSON: 1,
                EMAIL: {PERSON: [{PERSON: 1}]},
                "twice": 0,
                "leadSource": PERSON,
                "intent": EMAIL,
                "urgency": PERSON,
                "consumerSituation": PERSON,
                "contact": {"email": EMAIL, PERSON: 1, "preferences": {EMAIL: 1, "method": PERSON, "twice": 0}},
                "viewingTimes": [{PERSON: 1, EMAIL: {PERSON: 1}}, {"twice": 0}],
                "listingDetails": {"propertyType": PERSON, "images": [{EMAIL: 1}, {PERSON: PERSON, "twice": 0}]},
            },
        ]
        body = json.dumps({path.strip("/").removesuffix("-leads") + "s": leads})
        return 200, body.replace('"twice": 0', f'"{PERSON}": 1, "{PERSON}": 2, "{EMAIL}": 1, "{EMAIL}": 2').encode()


def holding(folder: Path, canary: str) -> set[str]:
    """Files below the folder whose name or content holds the canary, as it is or in Base64 at any offset."""
    needles = [canary.encode(), *(base64.b64encode(b" " * shift + canary.encode())[4:-4] for shift in range(3))]
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and any(needle in str(path).encode() or needle in path.read_bytes() for needle in needles)
    }


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    for number, content in enumerate((EMAIL.encode(), base64.b64encode(f"agency:{SECRET}".encode()), b"innocent")):
        (tmp_path / str(number)).write_bytes(content)
    (tmp_path / PHONE).touch()
    assert [holding(tmp_path, canary) for canary in (EMAIL, SECRET, PHONE, TOKEN)] == [{"0"}, {"1"}, {PHONE}, set()]


@needs_gpg
def test_no_artefact_holds_a_secret_or_personal_data_where_it_does_not_belong(tmp_path: Path) -> None:
    answers = CanaryAnswers()
    message = tmp_path / "message.asc"
    with running_gpg() as gpg:
        (tmp_path / "key.asc").write_bytes(gpg.make_key("agency", passphrase=PASSPHRASE))
        message.write_bytes(gpg.encrypt(SECRET.encode(), "agency"))
    for name in ("home", "tmp", "work", "output"):
        (tmp_path / name).mkdir()
    yesterday = str((datetime.now(UTC) - timedelta(days=1)).date())
    backfill = ("backfill", "--from", yesterday, "--to", yesterday)
    pgp = {
        "LEADS_CLIENT_SECRET_PGP_FILE": str(message),
        "LEADS_PGP_PRIVATE_KEY_FILE": str(tmp_path / "key.asc"),
        "LEADS_PGP_PASSPHRASE": PASSPHRASE,
    }
    wrong = {"LEADS_CLIENT_SECRET": WRONG_SECRET, "LEADS_DATA_DIR": str(tmp_path / "data")}
    calls: list[tuple[int, tuple[str, ...], dict[str, str]]] = [
        (1, backfill, pgp),  # branch 103 fails
        (1, ("doctor",), pgp),  # as does the doctor's request for it
        (1, ("coverage", "--days", "2"), pgp),
        (1, backfill, wrong),
        (1, backfill, {**pgp, "LEADS_PGP_PASSPHRASE": WRONG_PASSPHRASE}),
    ]
    with served(SmallPortal(SECRET, answers, tokens_begin=TOKEN)) as portal:
        for number, (exit_code, arguments, secret) in enumerate(calls):
            environment = {
                **portal.environment(),
                **secret,
                "LEADS_BRANCH_IDS": "101,102,103",
                "LEADS_DATA_DIR": str(tmp_path / "data"),
                "PATH": os.defpath,
                "HOME": str(tmp_path / "home"),
                "TMPDIR": str(tmp_path / "tmp"),
            }
            command = [str(Path(sys.executable).with_name("leads-pipeline")), *arguments]
            ended = subprocess.run(command, env=environment, cwd=tmp_path / "work", capture_output=True, check=False)
            (tmp_path / "output" / f"{number}-stdout").write_bytes(ended.stdout)
            (tmp_path / "output" / f"{number}-stderr").write_bytes(ended.stderr)
            assert ended.returncode == exit_code, (arguments, ended.stdout, ended.stderr)
        assert portal.token_requests == [SECRET, WRONG_SECRET, WRONG_SECRET]
    assert answers.asked["/applicant-leads", "102"] >= 3

    # What was searched for did go through: the leads are where they belong, and the token in the store.
    with duckdb.connect(str(tmp_path / "data" / "leads.duckdb"), read_only=True) as db:
        assert db.sql(
            "select distinct contact_email from applicant_leads where contact_email is not null"
        ).fetchall() == [(EMAIL,)]
        assert db.sql("select count(*) from applicant_leads where len(_problems) > 0").fetchall() != [(0,)]
        _, beside = of_leads_and_beside(db)
        assert {"main.drift", "main.mart_leads_daily", "pipeline.drift_by_day"} <= beside.keys()
        assert len(beside["main.drift"]) > 10
        for table, rows in beside.items():
            assert [canary for canary in PERSONAL if canary in str(rows)] == [], table
    assert len(list((tmp_path / "data" / ".dagster").rglob("*.db"))) > 2
    assert any((tmp_path / "data" / ".dagster").rglob("*.err"))

    for canary in CREDENTIALS:
        found = holding(tmp_path, canary)
        belongs = {path for path in found if canary == TOKEN and path.startswith("data/.state/tokens/")}
        assert found - belongs == set(), canary
        assert bool(belongs) == (canary == TOKEN)
    for canary in PERSONAL:
        found = holding(tmp_path, canary)
        places = ("data/raw/", "data/staged/", "data/leads.duckdb")
        assert {path for path in found if not path.startswith(places)} == set(), canary


def of_leads_and_beside(db: duckdb.DuckDBPyConnection) -> tuple[dict[str, Any], dict[str, Any]]:
    """The rows of the tables that hold leads, and of all others."""
    tables = db.sql("select schema_name || '.' || table_name from duckdb_tables()").fetchall()
    rows = {name: db.sql(f"from {name}").fetchall() for (name,) in tables}
    of_leads = {f"main.{table}" for kind in LEAD_KINDS for table in kind.tables}
    return {name: rows[name] for name in of_leads}, {name: rows[name] for name in rows.keys() - of_leads}


def open_to_others(folder: Path) -> dict[str, str]:
    """What others than the owner may read, write or enter, with its mode. An empty folder doesn't count."""
    return {
        str(path.relative_to(folder)): f"{mode:o}"
        for path in sorted(folder.rglob("*"))
        if (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077 and (path.is_file() or any(path.iterdir()))
    }


@pytest.fixture
def umask() -> Iterator[None]:
    """A shell that lets everybody read and write what is made in it, unless its maker says otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
@pytest.mark.slow
def test_a_whole_installation_is_for_its_owner_alone(tmp_path: Path) -> None:
    with installation(tmp_path, first=4) as here:
        here.pull(here.keys([1, 2]), LEAD_KINDS)
        damaged, *_ = [window.path for window in here.lake.landed_windows(APPLICANT, here.day(2))]
        damaged.write_bytes(b"no Parquet")
        here.pull(here.keys([2]), LEAD_KINDS)
        assert here.runner.pull_inventory(here.day(0)) is None
        Spool(here.lake).add([PushedLead(APPLICANT, ReceivedLead("a", '{"id":"a"}'), here.now)])
        assert here.execute(PUSH_JOB, tags={"dagster/partition": str(here.day(0))}).success
        Spool(here.lake).add([PushedLead(APPLICANT, ReceivedLead("b", '{"id":"b"}'), here.now)])
        assert here.runner.stage(here.day(2), here.day(0)) is None
        assert here.runner.publish() is None

        folder = here.lake.folder
        there = {path.name for path in folder.iterdir()}
        assert there >= {"raw", "staged", "spool", "quarantine", "reports", "leads.duckdb", ".state"}
        assert list((folder / ".state" / "tokens").glob("*.json"))
        # Analysts are let in by their group; data/README.md says how.
        assert open_to_others(folder) == {"leads.duckdb": "440"}
        home = Path(here.environment["DAGSTER_HOME"])
        assert stat.S_IMODE(home.stat().st_mode) == 0o700

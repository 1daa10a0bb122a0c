"""The person behind the leads: who is meant, where they lie, what they are given."""

import html
import json
import re
import shutil
import stat
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from leads_pipeline.contract import APPLICANT, LEAD_KINDS, PushedLead, ReceivedLead, read_leads
from leads_pipeline.duck import link_or_copy
from leads_pipeline.lake import Lake
from leads_pipeline.person.showing import texts_of
from leads_pipeline.simulator.app import Config
from leads_pipeline.simulator.book import LeadBook
from leads_pipeline.simulator.leads import LeadFactory
from leads_pipeline.simulator.stock import Stock
from leads_pipeline.spool import Spool
from leads_pipeline.window import Window
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.installation import Installation, installation
from leads_pipeline_tests.support.people import EMAIL, PHONE, lead
from leads_pipeline_tests.support.staging import land

# --- where they lie ---------------------------------------------------------------------------------------------------

CONFIG = Config(branches=2, leads_per_day=12)

# Lands a lead in a process that is killed when the file is written and hasn't its name yet.
KILLED = """
import os, sys
from datetime import date
from pathlib import Path
from leads_pipeline import durable
from leads_pipeline.contract import APPLICANT
from leads_pipeline.lake import Lake
from leads_pipeline_tests.support.people import EMAIL, PHONE, lead
from leads_pipeline_tests.support.staging import land
durable.publish_file = lambda source, path: os._exit(9)
land(Lake(Path(sys.argv[1])), APPLICANT, [sys.argv[2]], day=date.fromisoformat(sys.argv[3]))
"""


@dataclass(frozen=True)
class Person:
    """Somebody who turned to the agency, by the portal's own book, and where else they were planted."""

    here: Installation
    email: str
    phone: str
    name: str
    # Every text of each of their leads that left the portal, by kind and id.
    texts: Mapping[tuple[str, str], set[str]]


def portal_leads(here: Installation) -> Iterator[tuple[str, str]]:
    """Kind and text of what the portal lists for yesterday and the day before."""
    book = LeadBook(LeadFactory(CONFIG.seed, CONFIG.leads_per_day, Stock(CONFIG.seed)))
    for kind in LEAD_KINDS:
        for ago in (1, 2):
            for scope in here.settings.scopes:
                window = Window.of(here.day(ago), scope, here.settings.zone)
                [branch] = here.simulator.organisation.branches_of(scope.key)
                body = book.answer(kind.name, [branch], window.start, window.end, here.now)  # type: ignore[arg-type]  # the simulator's own two names
                yield from ((kind.name, one.payload) for one in read_leads(kind, body))


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    with installation(tmp_path, CONFIG, first=6) as here:
        here.pull(here.keys([1, 2], [101, 102]), LEAD_KINDS)
        texts: defaultdict[str, defaultdict[tuple[str, str], set[str]]] = defaultdict(lambda: defaultdict(set))
        for kind, text in portal_leads(here):
            content = json.loads(text)
            texts[content["contact"]["email"].strip().lower()][kind, content["id"]].add(text)
        email = max(texts, key=lambda one: len(texts[one]))
        own, lake = texts[email], here.lake
        contact = json.loads(next(iter(next(iter(own.values())))))["contact"]

        def planted(lead_id: str, **more: object) -> str:
            text = json.dumps({"id": lead_id, "contact": {**contact, "email": f" {email.upper()}"}, **more})
            own["applicant", lead_id].add(text)
            return text

        # A version before the person's address changed, and the one after it.
        land(lake, APPLICANT, [planted("moved-away")], day=here.day(4), fetched_at=here.now - timedelta(hours=2))
        after = json.dumps({"id": "moved-away", "contact": {"email": "new@people.example"}})
        own["applicant", "moved-away"].add(after)
        land(lake, APPLICANT, [after], day=here.day(4), fetched_at=here.now)
        assert here.runner.stage(here.day(4), here.day(1)) is None
        assert here.runner.publish() is None

        delivery = planted("pushed")
        Spool(lake).add([PushedLead(APPLICANT, ReceivedLead("pushed", delivery), here.now)])
        command = [sys.executable, "-c", KILLED, str(lake.folder), planted("killed"), str(here.day(5))]
        assert subprocess.run(command, check=False, cwd=Path(__file__).parents[2]).returncode == 9
        land(lake, APPLICANT, [planted("set aside")], day=here.day(6))
        [window] = lake.landed_windows(APPLICANT, here.day(6))
        content = bytearray(window.path.read_bytes())
        content[content.rindex(b"PAR1") - int.from_bytes(content[-8:-4], "little") - 5] ^= 1  # in the seal
        window.path.write_bytes(content)
        assert lake.landed_windows(APPLICANT, here.day(6)) == []

        scratch = lake.folder / ".state" / "duckdb"
        landed = lake.landed_windows(APPLICANT, here.day(4))[0].path
        link_or_copy(landed, scratch / "staged-2026-01-01-raw" / "0.parquet")
        draft = lake.folder / ".leads.duckdb.draft"
        shutil.copyfile(lake.folder / "leads.duckdb", draft)
        draft.chmod(0o600)
        writing = lake.folder / "staged" / ".writing-2026-01-01" / "applicant_leads.tmp"
        writing.parent.mkdir()
        shutil.copyfile(lake.staged_path("applicant_leads", here.day(4)), writing)
        with (lake.folder / "reports" / "leads.html").open("a") as report:
            report.write(f"<!-- {email} -->")
        here.instance.report_engine_event(f"somebody wrote {email.upper()}", here.runs()[0])
        (Path(here.environment["DAGSTER_HOME"]) / "written.log").write_text(f"a line\nmailto:{email}\n")
        yield Person(here, email, contact["phoneNumber"], f"{contact['firstName']} {contact['lastName']}", dict(own))


def found_by(*arguments: str, exit_code: int = 0) -> dict[str, Any]:
    result = run("privacy", "find", "--json", *arguments)
    assert result.exit_code == exit_code, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def group_a(answer: Mapping[str, Any]) -> set[tuple[str, str]]:
    return {(one["kind"], one["lead_id"]) for one in answer["leads"] if one["group"] == "A"}


@pytest.mark.slow
def test_find_reaches_a_person_in_every_place_and_export_gives_them_exactly_theirs(
    person: Person, tmp_path: Path
) -> None:
    result = run("privacy", "find", "--json", "--email", person.email.title())
    assert result.exit_code == 0, result.output
    for text in (person.email, person.phone, person.name.split()[1], "new@people.example"):
        assert text.casefold() not in (result.output + result.stderr).casefold()
    answer = json.loads(result.stdout)
    assert group_a(answer) == person.texts.keys()
    assert len(person.texts) >= 5
    places = {row["place"] for one in answer["leads"] for row in one["rows"]}
    assert places == {
        *("raw", "raw, unfinished", "spool", "quarantine", "staged", "staged, unfinished"),
        *("leads.duckdb", "leads.duckdb, unfinished", "scratch of DuckDB"),
    }
    assert {one["place"] for one in answer["traces"]} >= {"Dagster's home", "reports", "staged"}
    assert {one["part"] for one in answer["traces"]} >= {"text", "event_logs", "footer"}
    [moved] = [one for one in answer["leads"] if one["lead_id"] == "moved-away"]
    assert moved["versions"] == 2

    folder = tmp_path / "answer"
    result = run("privacy", "export", "--email", person.email, "--to", folder)
    assert result.exit_code == 0, result.output
    document = json.loads((folder / "person.json").read_text())
    exported = {
        (one["kind"], one["lead_id"]): {version["content"] for version in one["versions"]} for one in document["leads"]
    }
    assert exported == person.texts
    assert document["sources"]
    assert document["purposes"]
    assert document["retention"]
    page = (folder / "person.html").read_text()
    for texts in person.texts.values():
        for text in texts:
            for path, value in texts_of(text):
                # The portal's codes and moments stand there in words, each of which a test below looks at.
                shown = value.rsplit("_", 1)[-1].lower() if re.fullmatch("[A-Z]+(_[A-Z]+)+", value) else value
                if re.fullmatch(r"2[0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9:]+Z", value):
                    shown = f":{value[14:16]}<"
                assert html.escape(value) in page or shown in page or path.endswith(".")
    strangers = {json.loads(text)["id"] for _, text in portal_leads(person.here)} - {one for _, one in person.texts}
    assert len(strangers) > 20
    assert not any(stranger in page for stranger in strangers)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}
    assert sorted(modes.values()) == [0o600, 0o600, 0o700]
    again = run("privacy", "export", "--email", person.email, "--to", folder)
    assert again.exit_code == 2
    assert "Name a new one" in again.stderr


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a raw file alone: two leads of Jane's, one that bears her number, one that names her."""
    monkeypatch.setenv("LEADS_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    leads = [
        lead("1", email=EMAIL, phone=PHONE, name="Jane Roe", consumerPostcode="SW1A 1AA"),
        lead("2", email=EMAIL.upper(), name="Roe Jane"),
        lead("3", email="john@people.example", phone=PHONE, name="John Roe"),
        lead("4", email="john@people.example", name="John Roe", message=f"or ask {EMAIL}"),
    ]
    land(Lake(tmp_path / "data"), APPLICANT, leads)
    return tmp_path / "data"


@pytest.mark.usefixtures("few")
def test_find_shows_no_personal_data_unless_it_is_asked_to() -> None:
    for arguments in (["--json"], []):
        result = run("privacy", "find", "--email", EMAIL, *arguments)
        assert result.exit_code == 0
        assert "1" in result.stdout
        for text in (EMAIL, PHONE, "Roe", "people"):
            assert text.casefold() not in (result.output + result.stderr).casefold()
    told = run("privacy", "find", "--email", EMAIL, "--show")
    assert told.exit_code == 2
    assert "no terminal" in told.stderr


@pytest.mark.usefixtures("few")
def test_find_takes_each_kind_of_identifier(tmp_path: Path) -> None:
    def found(*arguments: str) -> dict[str, str]:
        return {one["lead_id"]: one["group"] for one in found_by(*arguments)["leads"]}

    assert found("--lead", "3") == {"3": "A"}
    assert found("--email", EMAIL) == {"1": "A", "2": "A", "4": "D"}
    assert found("--email", EMAIL, "--phone", PHONE) == {"1": "A", "2": "A", "3": "C", "4": "D"}
    assert found("--phone", PHONE, "--name", "John Roe") == {"1": "C", "3": "A", "4": "P"}
    assert found("--postcode", "sw1a1aa") == {"1": "P"}
    listed = tmp_path / "request.txt"
    listed.write_text(f"email: {EMAIL}\n\nPhone : {PHONE}\n")
    assert found("--from", str(listed)) == {"1": "A", "2": "A", "3": "C", "4": "D"}
    listed.write_text(f"email: {EMAIL}\n{PHONE}\n")
    told = run("privacy", "find", "--from", listed)
    assert told.exit_code == 2
    assert "Line 2" in told.stderr
    assert PHONE not in told.stderr


@pytest.mark.usefixtures("few")
def test_who_is_nowhere_is_not_found_and_whoever_asks_for_nobody_is_told() -> None:
    answer = found_by("--email", "nobody@people.example", "--phone", "020 7946 0999", "--lead", "nowhere")
    assert (answer["leads"], answer["traces"]) == ([], [])
    assert run("privacy", "find").exit_code == 2
    assert run("privacy", "find", "--email", "n/a").exit_code == 2


def test_where_there_is_no_data_folder_nobody_is_said_to_be_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEADS_DATA_DIR", str(tmp_path / "nowhere"))
    told = run("privacy", "find", "--email", EMAIL)
    assert (told.exit_code, "nothing to look through" in told.stderr) == (2, True), told.output


def test_what_cannot_be_decoded_is_named_and_makes_the_search_incomplete(few: Path) -> None:
    quarantine = few / "quarantine"
    quarantine.mkdir()
    (quarantine / "cut.parquet").write_bytes(b"PAR1 cut off")
    (quarantine / "cut.duckdb").write_bytes(b"12345678DUCK" + b"\0" * 50)
    (quarantine / "cut.db").write_bytes(b"SQLite format 3\0" + b"\0" * 50)
    answer = found_by("--email", EMAIL, exit_code=1)
    assert not answer["is_whole"]
    assert {one["file"] for one in answer["not_read"]} == {
        f"quarantine/cut.{end}" for end in ("parquet", "duckdb", "db")
    }
    assert {lead_id for _, lead_id in group_a(answer)} == {"1", "2"}
    told = run("privacy", "export", "--email", EMAIL, "--to", few.parent / "answer")
    assert told.exit_code == 1
    assert "quarantine/cut.parquet" in told.stderr


def test_an_export_runs_nothing_that_somebody_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADS_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    evil = "<script>alert(1)</script>"
    land(Lake(tmp_path / "data"), APPLICANT, [lead(evil, email=EMAIL, message=evil, **{evil: evil})])
    assert run("privacy", "export", "--email", EMAIL, "--to", tmp_path / "answer").exit_code == 0
    page = (tmp_path / "answer" / "person.html").read_text()
    assert html.escape(evil) in page
    assert "<script" not in page
    assert run("privacy", "export", "--email", "nobody@people.example", "--to", tmp_path / "other").exit_code == 1
    assert not (tmp_path / "other").exists()


def test_an_export_speaks_to_the_person_and_gives_a_machine_what_was_received(
    few: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEADS_TIMEZONE", "Europe/London")
    one = lead(
        "5",
        email="new@people.example",
        createdAt="2026-07-01T09:05:00Z",
        intent="APPLICANT_INTENT_BUY",
        petsName="Rex",
        message="ABC_DEF 2026-07-01T09:05:00Z",
    )
    land(Lake(few), APPLICANT, [one])
    assert run("privacy", "export", "--email", "new@people.example", "--to", few.parent / "answer").exit_code == 0
    page = (few.parent / "answer" / "person.html").read_text()
    for shown in ("enquiry about a property", "<td>1 July 2026, 10:05<", "<td>buy<", "<th>pets name<td>Rex<"):
        assert shown in page, shown
    for code in ("APPLICANT_INTENT", "e.g.", "createdAt", ">pull<", "branch-101"):
        assert code not in page, code
    assert "ABC_DEF 2026-07-01T09:05:00Z" in page  # what somebody wrote is theirs
    document = json.loads((few.parent / "answer" / "person.json").read_text())
    assert json.loads(document["leads"][0]["versions"][0]["content"]) == one


def test_an_export_says_yes_and_no_and_for_how_long_it_is_kept(few: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    land(Lake(few), APPLICANT, [lead("5", email="new@people.example", organiseViewing=True, isOverseas=False)])
    for number, keep in enumerate(({}, {"LEADS_KEEP_PERSONAL_DAYS": "41"})):
        for name, value in keep.items():
            monkeypatch.setenv(name, value)
        folder = few.parent / f"answer{number}"
        assert run("privacy", "export", "--email", "new@people.example", "--to", folder).exit_code == 0
        page, document = (folder / "person.html").read_text(), json.loads((folder / "person.json").read_text())
        [version] = document["leads"][0]["versions"]
        assert ["organiseViewing", "yes"] in version["fields"]
        assert ["isOverseas", "no"] in version["fields"]
        assert page.count("<td>yes<") == 1
        assert ("no end of its own" in page) == (not keep)
        assert ("41 days" in page) == bool(keep)

"""The README and its guides keep their word: each command, table, variable and snippet in them is there and runs."""

import ast
import html
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any

import duckdb
import pytest
from click import Context
from dagster import AssetCheckKey, AssetKey, DagsterInstance

from leads_pipeline.cli import main
from leads_pipeline.definitions import build_definitions
from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.observe.findings import FINDERS
from leads_pipeline.orchestration.publication import write_typed
from leads_pipeline.simulator import Config, running
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.raw import list_places
from leads_pipeline.storage.store import FolderStore, open_store
from leads_pipeline.transform.versions import Versions
from leads_pipeline_tests.storage.test_store import moto, new_bucket
from leads_pipeline_tests.support import findings_page
from leads_pipeline_tests.support.portal_leads import Lead, groups, people
from leads_pipeline_tests.support.staging import LONDON

__all__ = ["moto"]  # a fixture

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
OPERATE = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
ANALYSE = (ROOT / "docs" / "analyse.md").read_text(encoding="utf-8")
GUIDES = "\n".join((README, OPERATE, ANALYSE))
BIN = Path(sys.executable).parent


def blocks(language: str) -> list[str]:
    return [dedent(block) for block in re.findall(rf"^ *```{language}\n(.*?)^ *```", GUIDES, re.MULTILINE | re.DOTALL)]


def commands() -> list[str]:
    lines = "".join(blocks("sh")).splitlines()
    return sorted({line.split("#")[0].strip() for line in lines if line.strip()})


# Far enough back for a day before the last seven, and for the whole of the seven.
DAYS_BACK = 9


@dataclass(frozen=True)
class Installation:
    """A folder with data/ filled by the README's own backfill command, and the environment it ran in.

    `today` is the day on which it was.
    """

    folder: Path
    environment: dict[str, str]
    today: date

    @property
    def file(self) -> Path:
        return self.folder / "data" / "leads.duckdb"


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("installation")
    with running(Config(branches=2, leads_per_day=10)) as simulator:
        environment = {
            **os.environ,
            **simulator.environment(),
            "LEADS_TIMEZONE": LONDON.key,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }
        today = datetime.now(LONDON).date()
        command = next(line for line in commands() if line.startswith("leads-pipeline backfill"))
        command = re.sub(r"--last \d+d", f"--last {DAYS_BACK}d", command)
        done = run(command, folder, environment)
        assert done.returncode == 0, done.stderr
        yield Installation(folder, environment, today)


@dataclass(frozen=True)
class RawRow:
    """A lead as one window holds it; one of midnight is in two."""

    kind: str
    scope: str
    day: date
    content: dict[str, Any]


def raw_rows(data: Path) -> list[RawRow]:
    return [
        RawRow(kind.name, place.scope, place.day, json.loads(row.payload))
        for kind in LEAD_KINDS
        for place in list_places(FolderStore(data))
        if place.kind is kind
        for row in DataFolder.at(data).raw.read(place).rows
    ]


def landed_leads(data: Path) -> list[Lead]:
    """Each lead of the raw files once; the portal of these tests sends each in one version."""
    found = {
        (row.kind, row.content["id"]): Lead.received(row.kind, row.scope, row.day, row.content, LONDON)
        for row in raw_rows(data)
    }
    return list(found.values())


def comparable(row: Iterable[Any]) -> tuple[Any, ...]:
    """A row to be compared with one that was printed."""
    found = []
    for cell in row:
        text = "" if cell is None else str(cell).strip()
        found.append(float(f"{float(text):.9g}") if re.fullmatch(r"\d+(\.\d+)?(e[+-]?\d+)?", text) else text)
    return tuple(found)


def printed(output: str) -> list[tuple[Any, ...]]:
    """The lines of a table, as DuckDB, rich, pandas or polars print it."""
    lines = [line.strip() for line in output.splitlines()]
    return [
        comparable(re.split("[│┆]", line.removeprefix("│").removesuffix("│")) if "│" in line else line.split())
        for line in lines
        if line
    ]


def run(command: str, folder: Path, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(  # noqa: S602 - the README's own lines, as a shell reads them
        command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


CLONE = "git clone ADDRESS-OF-THIS-REPOSITORY leads_pipeline && cd leads_pipeline"


def test_the_readme_begins_with_what_to_try() -> None:
    tried = [line.split("#")[0].strip() for line in blocks("sh")[0].splitlines()]
    assert tried == [CLONE, "make demo", "make test"]
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_every_command_is_one_that_is_tested_here() -> None:
    targets = {f"make {target}" for target in ("demo", "test", "dev")}
    known = {*targets, CLONE, "install -m 600 .env.example .env", "source .venv/bin/activate", "leads-pipeline doctor"}
    rest = [line for line in commands() if line not in known]
    assert [line.split(" -")[0] for line in rest] == [
        "duckdb",
        "leads-pipeline backfill",
        "leads-pipeline coverage",
    ]


@pytest.mark.parametrize("command", ["leads-pipeline doctor", "leads-pipeline coverage"])
def test_the_commands_that_look_answer(command: str, installation: Installation) -> None:
    done = run(command, installation.folder, installation.environment)
    assert done.stdout.strip()
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`make ([a-z-]+)`", GUIDES)) | {"demo", "test", "dev"}))
def test_every_make_target_exists(name: str) -> None:
    done = subprocess.run(["make", "-n", name], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`leads-pipeline ([a-z-]+[a-z])", GUIDES))))
def test_every_subcommand_exists(name: str) -> None:
    command = main.get_command(Context(main), name)
    assert command
    told = command.get_help(Context(command))
    for option in re.findall(rf"`leads-pipeline {name}[^`]*?(--[a-z]+)", GUIDES):
        assert option in told


def bare(folder: Path) -> dict[str, str]:
    """What a newcomer's shell has: no setting of ours."""
    return {"HOME": str(folder), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}


# What says of a lead or a window that it was looked at once more.
CONFIRMATIONS = ("sequence", "looked_at", "last_looked_at")


def contents(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """The rows of every table, but for what a further look alone changes."""
    with duckdb.connect(path, read_only=True) as db:
        tables = db.sql("select table_name from duckdb_tables() where schema_name = 'main'").fetchall()
        return {
            name: db.sql(f"select columns(lambda c: c not in {CONFIRMATIONS}) from {name} order by all").fetchall()  # noqa: S608
            for (name,) in tables
        }


def checks_that_did_not_pass(data: Path) -> dict[AssetCheckKey, bool | None]:
    """What the UI shows of them, as a newcomer sees it first; None is a check that nothing has run."""
    planned = build_definitions({"LEADS_DATA_DIR": str(data)}).resolve_asset_graph().asset_check_keys
    with DagsterInstance.get() as instance:
        found = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(planned))
    passed: dict[AssetCheckKey, bool | None] = dict.fromkeys(planned)
    passed |= {key: one.evaluation.passed for key, one in found.items() if one.evaluation}
    return {key: has_passed for key, has_passed in passed.items() if not has_passed}


@pytest.mark.slow
def test_the_demo_ends_with_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run("leads-pipeline demo", tmp_path, bare(tmp_path))
    assert first.returncode == 0, first.stderr
    assert "What to do next" in first.stdout
    leads = landed_leads(tmp_path / "data")
    kinds = {
        scope: Counter(lead.kind for lead in found) for (scope,), found in groups(leads, lambda lead: (lead.scope,))
    }
    answer = {
        comparable((scope, kinds[scope]["applicant"], kinds[scope]["appraisal"], people(found)))
        for (scope,), found in groups(leads, lambda lead: (lead.scope,))
    }
    assert {row for row in printed(first.stdout) if row[0] in kinds} == answer
    # A wrong query would show, as people come again.
    by_day = groups(leads, lambda lead: (lead.scope, lead.day))
    assert sum(people(found) for _, found in by_day) > sum(row[-1] for row in answer)
    with duckdb.connect(tmp_path / "data" / "leads.duckdb", read_only=True) as db:
        # Its page shows the days that it pulled, and none before them in red.
        assert db.sql("select count(*) from mart_coverage where state in ('missing', 'failed')").fetchall() == [(0,)]
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "data" / ".dagster"))
    drifted = AssetCheckKey(AssetKey("drift"), "contract_knows_what_comes")
    assert checks_that_did_not_pass(tmp_path / "data") == {drifted: False}


@pytest.mark.slow
def test_the_demo_changes_nothing_the_second_time(tmp_path: Path) -> None:
    assert run("leads-pipeline demo", tmp_path, bare(tmp_path)).returncode == 0
    before = contents(tmp_path / "data" / "leads.duckdb")
    again = run("leads-pipeline demo", tmp_path, bare(tmp_path))
    assert "Pulling 0 of 42 windows." in again.stdout
    assert "0 of them new." in " ".join(again.stdout.split())
    assert contents(tmp_path / "data" / "leads.duckdb") == before


@pytest.mark.slow
def test_the_ui_starts_on_the_simulator_and_ends_when_it_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(BIN / "leads-pipeline"), "dev", "--port", str(port)]
    process = subprocess.Popen(command, cwd=tmp_path, env=bare(tmp_path), stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info") as answer:
                    assert b"dagster_version" in answer.read()
                break
            except OSError:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.5)
    finally:
        process.terminate()
        assert process.wait(60) == 0


def origins(lead: Lead) -> Iterator[str]:
    """Site and product as a person reads them."""
    for field, prefix in (("leadSource", "SOURCE_"), ("portalSource", "PORTAL_SOURCE_")):
        yield lead.text(field).removeprefix(f"{lead.kind.upper()}_{prefix}").lower().replace("_", " ") or "unknown"


def test_the_duckdb_command_line_answers(installation: Installation) -> None:
    command = next(line for line in commands() if line.startswith("duckdb "))
    done = run(command, installation.folder, installation.environment)
    assert done.returncode == 0, done.stderr

    def key(lead: Lead) -> tuple[Any, ...]:
        return lead.day, lead.scope, lead.scope, lead.kind, lead.market, *origins(lead)

    leads = landed_leads(installation.folder / "data")
    truth = {comparable((*group, len(found), people(found))) for group, found in groups(leads, key)}
    rows = [row for row in printed(done.stdout) if row[1:2] and row[1] in {lead.scope for lead in leads}]
    assert len(rows) == 5
    assert set(rows) <= truth


def snippet_figures(data: Path) -> dict[str, list[tuple[Any, ...]]]:
    """What each Python snippet of the README has to print, by words that it alone has."""
    leads = landed_leads(data)
    applicants = [lead for lead in leads if lead.kind == "applicant"]
    by_day = sorted((*group, len(found)) for group, found in groups(leads, lambda lead: (lead.day, lead.scope)))
    images: Counter[date] = Counter()
    for lead in applicants:
        images[lead.day] += len((lead.content.get("listingDetails") or {}).get("images") or [])
    costs = [
        (*group, 900, len(found), 900 / len(found))
        for group, found in groups(leads, lambda lead: (lead.scope, datetime(lead.day.year, lead.day.month, 1)))  # noqa: DTZ001 - a month
    ]
    return {
        "from mart_leads_daily": [
            (number, *row) for number, row in enumerate(by_day[-5:], start=max(0, len(by_day) - 5))
        ],
        "applicant_listing_images": [(day, count) for day, count in images.items() if count],
        "scan_parquet": list(Counter(lead.scope for lead in applicants).items()),
        "scan_delta": list(Counter(lead.scope for lead in applicants).items()),
        "invoices.csv": costs,
    }


@pytest.mark.parametrize("snippet", blocks("python"))
@pytest.mark.slow
def test_every_python_snippet_prints_what_python_works_out(
    snippet: str,
    installation: Installation,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment, folder = dict(installation.environment), installation.folder
    if "scan_delta" in snippet:
        folder = tmp_path
        shutil.copytree(installation.folder / "data", folder / "data", symlinks=True)
        write_typed(DataFolder.at(folder / "data"), Versions(folder / "data"), "delta")
    if "my-bucket" in snippet:
        bucket = new_bucket(request.getfixturevalue("moto"), monkeypatch)
        for path in filter(Path.is_file, (folder / "data" / "tables").rglob("*")):
            key = path.relative_to(folder / "data").as_posix()
            open_store(f"{bucket}/leads", plain_http=True).create(key, path.read_bytes())
        snippet = snippet.replace("my-bucket", bucket.removeprefix("s3://"))
        environment |= {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", snippet],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [truth] = [rows for words, rows in snippet_figures(installation.folder / "data").items() if words in snippet]
    assert truth
    assert {comparable(row) for row in truth} <= set(printed(done.stdout))


QUERIES = "".join(blocks("sql")).strip().rstrip(";").split(";")


def query(installation: Installation, statement: str, moment: str, stands_for: str) -> list[tuple[Any, ...]]:
    """The query's rows as of that moment; midnight may have passed since the installation was filled."""
    assert moment in statement
    with duckdb.connect(installation.file, read_only=True) as db:
        db.execute("set TimeZone = 'UTC'")
        return db.execute(statement.replace(moment, stands_for)).fetchall()


def test_the_query_of_the_week_counts_each_person_of_seven_days_once(installation: Installation) -> None:
    week, *_ = QUERIES
    leads = landed_leads(installation.folder / "data")
    seven_days = [lead for lead in leads if timedelta(1) <= installation.today - lead.day <= timedelta(7)]
    truth = [(*scope, len(found), people(found)) for scope, found in groups(seven_days, lambda lead: (lead.scope,))]
    # A wrong query would show: people come again, and there are leads of the day before.
    by_day = groups(seven_days, lambda lead: (lead.scope, lead.day))
    assert sum(people(found) for _, found in by_day) > sum(people for _, _, people in truth)
    assert any(installation.today - lead.day == timedelta(8) for lead in leads)

    rows = query(installation, week, "current_date", f"date '{installation.today}'")

    assert sorted(rows) == sorted(truth)
    assert [row[1] for row in rows] == sorted((row[1] for row in truth), reverse=True)


def test_the_query_of_earlier_versions_shows_what_was_received(installation: Installation) -> None:
    _, earlier, _ = QUERIES
    [lead, *_] = [row for row in raw_rows(installation.folder / "data") if row.kind == "applicant"]
    contact = lead.content["contact"]
    statement = earlier.replace("data/raw", f"{installation.folder}/data/raw").replace("THE-ID", lead.content["id"])
    with duckdb.connect() as db:
        rows = db.execute(statement).fetchall()
    assert [row[2:] for row in rows][-1] == (contact.get("email"), contact.get("phoneNumber"))


def test_the_query_of_what_is_missing_names_each_window_that_can_be_had(installation: Installation) -> None:
    _, _, missing = QUERIES
    now = datetime.now(UTC)
    first = installation.today - timedelta(days=30)
    truth = []
    for day in (first + timedelta(days=number) for number in range(30 - DAYS_BACK)):
        deleted_from = datetime(day.year, day.month, day.day, tzinfo=LONDON).astimezone(UTC) + timedelta(days=30)
        if deleted_from > now:
            truth += [
                (kind.name, day, f"branch-{branch}", "missing", deleted_from)
                for kind in LEAD_KINDS
                for branch in installation.environment["LEADS_BRANCH_IDS"].split(",")
            ]

    rows = query(installation, missing, "now()", f"timestamptz '{now.isoformat()}'")

    assert len(truth) > 50
    assert sorted(rows) == sorted(truth)
    assert [row[-1] for row in rows] == sorted(row[-1] for row in truth)


def test_the_tables_are_those_of_the_file(installation: Installation) -> None:
    section = ANALYSE.split("## The tables")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    with duckdb.connect(installation.file, read_only=True) as db:
        there = {
            name
            for (name,) in db.sql(
                "select table_name from information_schema.tables where table_schema = 'main'"
            ).fetchall()
        }
    assert named == there


def test_the_runbook_has_each_finding_in_the_words_of_its_finder() -> None:
    assert findings_page.PAGE.read_text(encoding="utf-8") == findings_page.page()
    text = findings_page.page()
    assert all(text.count(f"**{word}**") == len(FINDERS) + 1 for word in ("Meaning", "Do", "Over"))


NOTEBOOK = ROOT / "examples" / "first_look.ipynb"


def test_the_notebook_runs_and_holds_nothing_that_it_printed(installation: Installation, tmp_path: Path) -> None:
    """Its cells one after the other, as a kernel would run them, with the last line of each shown."""
    cells = [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)
    script = "display = print\n"
    for cell in cells:
        *statements, shown = ast.parse("".join(cell["source"])).body
        if isinstance(shown, ast.Expr):
            shown = ast.parse(f"print({ast.unparse(shown)})").body[0]
        script += "".join(f"{ast.unparse(statement)}\n" for statement in (*statements, shown))
    shutil.copytree(NOTEBOOK.parent, tmp_path / "examples")
    (tmp_path / "data").symlink_to(installation.folder / "data")
    # What pandas 3 has deprecated is called by DuckDB's own df().
    warnings = ["-W", "error", "-W", "ignore:The inplace keyword"]
    done = subprocess.run(
        [sys.executable, *warnings, "-c", script],
        cwd=tmp_path / "examples",
        env=bare(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "mart_hidden_valuations" in done.stdout
    by_day = groups(landed_leads(installation.folder / "data"), lambda lead: (lead.day, lead.kind))
    daily = sorted((*group, len(leads), people(leads)) for group, leads in by_day)
    truth = [(number, *row) for number, row in enumerate(daily)][-10:]
    assert {comparable(row) for row in truth} <= set(printed(done.stdout))


@pytest.mark.slow
@pytest.mark.parametrize("place", ["beside the data", "elsewhere"])
def test_jupyter_executes_the_notebook(installation: Installation, tmp_path: Path, place: str) -> None:
    shutil.copytree(NOTEBOOK.parent, tmp_path / "examples")
    environment = bare(tmp_path)
    if place == "elsewhere":
        environment["LEADS_DATA_DIR"] = str(installation.folder / "data")
    else:
        (tmp_path / "data").symlink_to(installation.folder / "data")
    run_it = "jupyter nbconvert --to html --execute examples/first_look.ipynb"
    done = run(run_it, tmp_path, environment)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "examples" / "first_look.html").read_text(encoding="utf-8")
    questions = [path.read_text(encoding="utf-8").split("\n")[0] for path in NOTEBOOK.parent.glob("questions/*.sql")]
    assert [question for question in questions if question.removeprefix("-- ") not in html.unescape(page)] == []


DOCUMENTS = [
    path for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("[a-z]*/**/*.md")]) if "node_modules" not in path.parts
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_and_heading_that_a_document_links_to_is_there(document: Path) -> None:
    for path, heading in re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]+))?\)", document.read_text(encoding="utf-8")):
        target = document.parent / path if path else document
        assert target.exists(), path
        if heading:
            titles = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


def test_the_readme_leads_to_every_guide() -> None:
    guides = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert guides <= set(re.findall(r"\(docs/([\w.-]+)", README))


def prose() -> Iterator[tuple[Path, str]]:
    """Documents, comments and docstrings: wherever a reader is sent to another file."""
    yield from ((path, path.read_text(encoding="utf-8")) for path in DOCUMENTS if path.name != "CHANGELOG.md")
    for pattern in (
        "leads_pipeline/**/*.py",
        "leads_pipeline/**/*.sql",
        "leads_pipeline_tests/**/*.py",
        "benchmarks/**/*.py",
    ):
        yield from ((path, path.read_text(encoding="utf-8")) for path in ROOT.glob(pattern))


def test_every_module_that_a_text_names_is_there() -> None:
    """`storage/raw.py` or `durable.py`, in any folder."""
    there = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("[a-z]*/**/*.py")}
    names = {name for path in there for name in (path, path.partition("/")[2], Path(path).name)}
    lost = {
        (path.relative_to(ROOT).as_posix(), name)
        for path, text in prose()
        if path.name != "test_project.py"
        for name in re.findall(r"(?<![\w./*{])([a-z][a-z_]*(?:/[a-z_]+)*\.py)\b", text)
        if name not in names and not name.startswith(("dagster/", "sitecustomize"))  # not ours
    }
    assert lost == set()

"""Records a month of the simulator, with drift, hostile leads and requests of people, and the tables that come of it.

It was run once, by the version whose tables are the promise, with this folder copied into its checkout:

    git worktree add ../old 1de0322e && cd ../old && make .venv/dev
    cp ../leads_pipeline/leads_pipeline_tests/promises/{month,record_month}.py leads_pipeline_tests/promises/
    .venv/bin/python -m leads_pipeline_tests.promises.record_month

The names of the simulator and of the hostile leads are those of that version.
"""

import json
import lzma
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from itertools import cycle, product
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.simulator.app import Config, Simulator
from leads_pipeline_tests.chaos.test_hostile import HOSTILE, hostile_lead
from leads_pipeline_tests.promises.month import ANSWERS, TABLES, Tables, carry_out, prepare, request, tables
from leads_pipeline_tests.promises.portal import portal
from leads_pipeline_tests.support.drifting import Received, leads_with_odd_names_and_ids, leads_with_one_change

ZONE = ZoneInfo("Europe/London")

# Thirty days, with the one of 25 hours; the second pull looks again at the last ones.
START, END = date(2026, 10, 20), date(2026, 11, 18)
AGAIN_FROM, AGAIN_TO = date(2026, 11, 16), date(2026, 11, 19)
REFUSED = ("/applicant-leads", "branch-102", date(2026, 11, 3))

BRANCHES = ("101", "102")
BRANCHES_FILE = "id,name\n101,Alderbourne\n102,Appledale\n"

# How many of the leads with one odd thing each are taken, so that the recording stays small.
EACH = 4

# Regular customers: each has leads in the days that are pulled again, and in days before.
CUSTOMERS = """
    select lower(contact_email) as email
    from (
        select contact_email, lead_day from applicant_leads
        union all select contact_email, lead_day from appraisal_leads
    )
    where contact_email not like '%example.org' and contact_email like '%@%'
    group by email
    having min(lead_day) < ? and max(lead_day) >= ?
    order by count(*) desc, email
"""


class RecordedPortal:
    """The simulator with hostile leads. It keeps each answer."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)
        self.is_second_look = False
        self.answers: dict[str, tuple[int, str]] = {}
        self.simulator = Simulator(Config(seed=5, branches=2, leads_per_day=8, clock=lambda: self.now))
        self._hostile = dict[tuple[str, date, str], list[str]]()
        days = [START + timedelta(days=number) for number in range((END - START).days + 1)]
        for kind in LEAD_KINDS:
            for (day, branch), text in zip(cycle(product(days, BRANCHES)), hostile_leads(kind), strict=False):
                self._hostile.setdefault((kind.path, day, branch), []).append(text)

    def answer(self, path: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
        status, body = self._answer(path, parameters)
        self.answers[request(path, parameters)] = status, body.decode()
        return status, body

    def _answer(self, path: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
        if path == "/inventory":
            return 200, self.simulator._inventory.page(parameters)  # noqa: SLF001 - without a token
        start, end = (datetime.fromisoformat(parameters[name]) for name in ("from-time", "to-time"))
        day, branch = start.astimezone(ZONE).date(), parameters["branch-id"]
        if (path, f"branch-{branch}", day) == REFUSED:
            return 400, b'{"errors": [{"code": "invalid_time", "message": "no", "links": []}]}'
        branches = self.simulator.organisation.branches_of(f"branch-{branch}")
        kind = path.strip("/").removesuffix("-leads")
        body: bytes = self.simulator._book.answer(kind, branches, start, end, self.now)  # noqa: SLF001 - likewise
        if self.is_second_look:  # the portal may change its mind about a lead
            body = body.replace(b'"message":"', b'"message":"Again: ', 1)
        added = ",".join(self._hostile.get((path, day, branch), []))
        comma = "," if added and not body.endswith(b"[]}") else ""
        return 200, body.removesuffix(b"]}") + f"{comma}{added}]}}".encode()


def hostile_leads(kind: Any) -> Iterator[str]:
    """Valid JSON, whatever is in it: an answer that is no JSON is another matter."""
    yield from (json.dumps(hostile_lead(kind, name, text)) for name, text in HOSTILE.items())
    odd = [*leads_with_one_change(kind)[::EACH], *leads_with_odd_names_and_ids(kind)]
    for text in odd:
        if Received.of(text).is_json and text == text.encode(errors="ignore").decode():
            yield text


def main() -> None:
    """Run the commands of a month, and write what was answered and what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        source = RecordedPortal()
        source.now = datetime.fromisoformat("2026-11-18T22:00:00Z")
        files = {"branches.csv": BRANCHES_FILE, "answers.csv": answers_file(source.simulator)}
        prepare(data, files)
        steps = list[dict[str, Any]]()

        def step(clock: str, *arguments: str, exit_code: int = 0) -> None:
            source.now = datetime.fromisoformat(f"{clock}Z")
            source.answers = {}
            with portal(source.answer) as address:
                code, said = carry_out(data, address, clock, arguments, f"{START}")
            assert code == exit_code, said
            steps.append({"clock": clock, "arguments": arguments, "exit_code": code, "answers": source.answers})

        step("2026-11-18 22:00:00", "backfill", "--from", f"{START}", "--to", f"{END}", exit_code=1)
        erased, corrected, objecting, restricted, lifted = customers(data)
        step("2026-11-18 22:05:00", "privacy", "correct", "--email", corrected, "--new-email", "right@people.example")
        # What is asked for after the backup outlives the restore, as the suppression list is somewhere else.
        step("2026-11-18 22:10:00", "backup", "backups")
        step("2026-11-18 22:20:00", "privacy", "erase", "--email", erased, "--yes")
        step("2026-11-18 22:40:00", "privacy", "object", "--email", objecting)
        step("2026-11-18 22:50:00", "privacy", "restrict", "--email", restricted)
        step("2026-11-18 23:00:00", "privacy", "restrict", "--email", lifted)
        step("2026-11-18 23:10:00", "restore", "backups")
        source.is_second_look = True
        step("2026-11-19 07:00:00", "backfill", "--from", f"{AGAIN_FROM}", "--to", f"{AGAIN_TO}")
        step("2026-11-19 07:30:00", "privacy", "lift", number_of_the_last_restriction(data))

        with lzma.open(ANSWERS, "wt", encoding="utf-8", preset=9) as file:
            json.dump({"start": f"{START}", "files": files, "steps": steps}, file)
        write_tables(tables(data / "leads.duckdb"))


def answers_file(simulator: Simulator) -> str:
    """The user's own file: when some leads were answered, and one that nobody knows."""
    leads = simulator.truth("applicant", "branch-101")[::20]
    rows = [f"{lead},2026-11-18T12:00:00Z" for lead in [*leads, "nobody"]]
    return "\n".join(["lead_id,answered_at", *rows, ""])


def customers(data: Path) -> list[str]:
    """The addresses of five people."""
    with duckdb.connect(str(data / "leads.duckdb"), read_only=True) as db:
        found = db.execute(CUSTOMERS, [AGAIN_FROM, AGAIN_FROM]).fetchall()
    return [email for (email,) in found[:5]]


def number_of_the_last_restriction(data: Path) -> str:
    """Return it as text. Each request has a receipt, which is named by its number."""
    receipts = (data.parent / "privacy" / "receipts").glob("*.txt")
    return str(max(int(receipt.stem) for receipt in receipts))


def write_tables(found: Tables) -> None:
    """Write the recording: a line for the table, then a line for each row."""
    with lzma.open(TABLES, "wt", encoding="utf-8", preset=9) as file:
        for table, (columns, rows) in found.items():
            file.write(f"{json.dumps({'table': table, 'columns': columns})}\n")
            file.writelines(f"{json.dumps(row, ensure_ascii=True)}\n" for row in rows)


if __name__ == "__main__":
    main()

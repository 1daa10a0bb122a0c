"""Records a month of the simulator, with drift and hostile leads, and the tables that a version makes of it.

It was run once, by the version whose tables are the promise, with this folder copied into its checkout:

    git worktree add ../old dd03c9a && cd ../old && make venv-dev
    cp -r ../leads_pipeline/leads_pipeline_tests/promises leads_pipeline_tests/
    .venv/bin/python -m leads_pipeline_tests.promises.record_month

The names of the simulator and of the hostile leads are those of that version.
"""

import importlib
import json
import lzma
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from leads_pipeline_tests.promises.month import ANSWERS, backfill, prepare, request, tables, write_tables
from leads_pipeline_tests.promises.portal import portal

# Thirty days, with the one of 25 hours; the second pull looks again at the last ones.
START = "2026-10-20"
PULLS = [
    ("2026-11-18 22:00:00", ["--from", START, "--to", "2026-11-18"], 1),
    ("2026-11-19 07:00:00", ["--from", "2026-11-16", "--to", "2026-11-19"], 0),
]
REFUSED = ("/applicant-leads", "branch-102", "2026-11-03")
BRANCHES = "id,name\n101,Alderbourne\n102,Appledale\n"

# How many of the leads with one odd thing each are taken, so that the recording stays small.
EACH = 4


def hostile_leads(kind: Any) -> Iterator[str]:
    """Valid JSON, whatever is in it: an answer that is no JSON is another matter."""
    drifting = importlib.import_module("leads_pipeline_tests.support.drifting")
    hostile = importlib.import_module("leads_pipeline_tests.chaos.test_hostile")
    yield from (json.dumps(hostile.hostile_lead(kind, name, text)) for name, text in hostile.HOSTILE.items())
    for number, name in enumerate(name for names in hostile.NAMES.values() for name in names):
        for person in range(3):
            contact = {"email": f"person.{person}@example.org", name: f"inner {name}"}
            lead = {"id": f"name {number} of {person}", "contact": contact, name: f"outer {name}"}
            yield json.dumps(lead | ({"viewingTimes": [{name: "item"}]} if kind.name == "applicant" else {}))
    yield from (json.dumps({"id": id_, "sourceBranchId": id_, "contact": {"email": id_}}) for id_ in hostile.IDS)
    odd = [text for text in drifting.leads_with_one_change(kind) if drifting.Received.of(text).is_json]
    yield from [text for text in odd if text == text.encode(errors="ignore").decode()][::EACH]


def main() -> None:
    """Answer two backfills from the simulator, and write what was answered and what came of it."""
    app = importlib.import_module("leads_pipeline.simulator.app")
    kinds = importlib.import_module("leads_pipeline.domain.contract").LEAD_KINDS
    now = [datetime.now(UTC)]
    hostile: dict[tuple[str, str], list[str]] = {}
    days = [f"2026-{month}-{day:02}" for month, last in ((10, range(20, 32)), (11, range(1, 19))) for day in last]
    for kind in kinds:
        for (day, branch), text in zip(
            cycle((day, branch) for day in days for branch in ("101", "102")), hostile_leads(kind), strict=False
        ):
            hostile.setdefault((kind.path, f"{day} {branch}"), []).append(text)
    simulator = app.Simulator(app.Config(seed=5, branches=2, leads_per_day=8, clock=lambda: now[0]))
    zone = ZoneInfo("Europe/London")
    pulls: list[dict[str, Any]] = []

    def answered(path: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
        if path == "/inventory":
            return 200, simulator._inventory.page(parameters)  # noqa: SLF001 - without a token
        start, end = (datetime.fromisoformat(parameters[name]) for name in ("from-time", "to-time"))
        day, branch = start.astimezone(zone).date().isoformat(), parameters["branch-id"]
        if (path, f"branch-{branch}", day) == REFUSED:
            return 400, b'{"errors": [{"code": "invalid_time", "message": "no", "links": []}]}'
        branches = simulator.organisation.branches_of(f"branch-{branch}")
        kind = path.strip("/").removesuffix("-leads")
        body: bytes = simulator._book.answer(kind, branches, start, end, now[0])  # noqa: SLF001 - likewise
        if pulls:  # what the portal says of a lead may change from one look to the next
            body = body.replace(b'"message":"', b'"message":"Again: ', 1)
        added = ",".join(hostile.get((path, f"{day} {branch}"), []))
        comma = "," if added and not body.endswith(b"[]}") else ""
        return 200, body.removesuffix(b"]}") + f"{comma}{added}]}}".encode()

    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        files: dict[str, str] = {"branches.csv": BRANCHES}
        for clock, arguments, exit_code in PULLS:
            now[0] = datetime.fromisoformat(f"{clock}Z")
            if not pulls:
                leads = simulator.truth("applicant", "branch-101")[::20]
                rows = [f"{lead},2026-11-18T12:00:00Z" for lead in leads]
                files["answers.csv"] = "\n".join(["lead_id,answered_at", *rows, "nobody,2026-11-18T12:00:00Z", ""])
                prepare(data, files)
            answers: dict[str, tuple[int, str]] = {}

            def answer(path: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
                status, body = answered(path, parameters)
                answers[request(path, parameters)] = status, body.decode()  # noqa: B023 - called in this turn
                return status, body

            with portal(answer) as address:
                code, said = backfill(data, address, clock, arguments, START)
            assert code == exit_code, said
            pulls.append({"clock": clock, "arguments": arguments, "exit_code": code, "answers": answers})
        month = {"start": START, "files": files, "pulls": pulls}
        with lzma.open(ANSWERS, "wt", encoding="utf-8", preset=9) as file:
            json.dump(month, file)
        write_tables(tables(data / "leads.duckdb"))


if __name__ == "__main__":
    main()

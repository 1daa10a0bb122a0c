"""Makes the data folder of dd03c9a that test_old_folder.py opens, from three days of the recorded month.

Run as record_month.py says, in a checkout of that version:

    .venv/bin/python -m leads_pipeline_tests.promises.record_folder
"""

import json
import socket
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import duckdb

from leads_pipeline_tests.promises.folder import (
    BRANCHES,
    CLOCK,
    DAYS,
    FAILED,
    FOLDER,
    answers_of_the_month,
    run,
)
from leads_pipeline_tests.promises.month import prepare, running
from leads_pipeline_tests.promises.portal import portal

KEY = "a-key-of-whoever-pushes"


def main() -> None:
    """Pull, take in a push, erase, object; leave a window failed and pushes waiting; pack it."""
    with tempfile.TemporaryDirectory() as parent, portal(answers_of_the_month(FAILED)) as address:
        data = Path(parent) / "data"
        prepare(data, {})
        said(1, run(data, address, CLOCK, "backfill", "--from", DAYS[0], "--to", DAYS[-1]))
        push(data, address, [lead("pushed-and-landed", "landed@example.org")])
        said(0, run(data, address, CLOCK, "backfill", "--from", DAYS[-1], "--to", DAYS[-1]))
        before = published(data)
        erased, objecting = people(data)
        said(0, run(data, address, CLOCK, "privacy", "erase", "--email", erased, "--yes"))
        said(0, run(data, address, CLOCK, "privacy", "object", "--email", objecting))
        after = published(data)
        waiting = ["pushed-and-waiting", "pushed-and-waiting-too"]
        push(data, address, [lead(id_, f"{id_}@example.org") for id_ in waiting])
        with duckdb.connect(str(data / "leads.duckdb"), read_only=True) as db:
            [(objecting_person,)] = db.execute(
                "select distinct person::varchar from applicant_leads where contact_email = ?", [objecting]
            ).fetchall()
        truth = {
            "leads": {kind: sorted(ids) for kind, ids in after.items()},
            "erased": sorted(set(before["applicant"]) - set(after["applicant"])),
            "objecting": objecting_person,
            "waiting": waiting,
        }
        assert truth["erased"]
        (Path(parent) / "truth.json").write_text(json.dumps(truth))
        with tarfile.open(FOLDER, "w:xz", preset=9) as archive:
            for name in ("data", "truth.json"):
                archive.add(Path(parent) / name, name, filter=kept)


def said(exit_code: int, done: tuple[int, str]) -> None:
    """Stop if a command ended otherwise."""
    assert done[0] == exit_code, done[1]


def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out locks, tokens and what runs have logged."""
    parts = Path(member.name).parts
    return None if {"locks", "tokens", "storage"} & set(parts) or parts[-1].endswith("-shm") else member


def lead(id_: str, email: str) -> dict[str, object]:
    """A pushed lead of the last day."""
    return {"id": id_, "createdAt": f"{DAYS[-1]}T10:00:00Z", "contact": {"email": email}}


def push(data: Path, address: str, leads: Sequence[Mapping[str, object]]) -> None:
    """Deliver to a receiver of this folder."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    body = json.dumps({"applicants": leads}).encode()
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    with running(data, address, CLOCK, ["receive", "--port", str(port)], LEADS_RECEIVE_KEY=KEY, **BRANCHES):
        for _ in range(240):
            try:
                urlopen(Request(f"http://127.0.0.1:{port}/leads", body, headers))
                return
            except HTTPError:
                raise
            except URLError:
                time.sleep(0.5)
    raise AssertionError("The receiver doesn't answer.")


def published(data: Path) -> dict[str, list[str]]:
    """The ids of the leads by kind."""
    with duckdb.connect(str(data / "leads.duckdb"), read_only=True) as db:
        return {
            kind: [id_ for (id_,) in db.sql(f"select lead_id from {kind}_leads order by 1").fetchall()]  # noqa: S608
            for kind in ("applicant", "appraisal")
        }


def people(data: Path) -> tuple[str, str]:
    """The addresses of somebody to erase and of somebody who is in mart_hidden_valuations."""
    with duckdb.connect(str(data / "leads.duckdb"), read_only=True) as db:
        hidden = db.sql(
            "select contact_email from mart_hidden_valuations join applicant_leads using (lead_id) "
            "where contact_email like '%@%' order by 1 limit 2"
        ).fetchall()
    return hidden[0][0], hidden[1][0]


if __name__ == "__main__":
    main()

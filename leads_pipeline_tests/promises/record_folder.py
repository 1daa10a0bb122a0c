"""Makes the data folder of 1de0322e that test_old_folder.py opens, from three days of the recorded month.

Run as record_month.py says, after it, with test_old_folder.py copied as well:

    .venv/bin/python -m leads_pipeline_tests.promises.record_folder
"""

import json
import os
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import duckdb

from leads_pipeline_tests.promises.month import environment, executable, prepare, remove_shared_clock
from leads_pipeline_tests.promises.portal import portal
from leads_pipeline_tests.promises.test_old_folder import (
    BRANCHES,
    DAYS,
    FOLDER,
    NEW_DAY,
    RIGHT,
    answers_of_the_month,
    endpoint,
    run,
)
from leads_pipeline_tests.support.serving import free_port

KEY = "a-key-of-whoever-pushes"

# The window that the portal refuses: what its request begins with, and its day.
REFUSED = ("/applicant-leads?branch-id=102", DAYS[1])

# Four people with ordinary addresses and several leads.
CUSTOMERS = """
    select contact_email from applicant_leads
    where contact_email like '%@example.com' or contact_email like '%@example.net'
    group by contact_email order by count(*) desc, contact_email
"""
HIDDEN = """
    select contact_email from mart_hidden_valuations join applicant_leads using (lead_id)
    where contact_email like '%@example.com' or contact_email like '%@example.net' order by 1
"""


def main() -> None:
    """Pull, take in pushes, deliver, carry out each request of a person, and pack the folder."""
    with tempfile.TemporaryDirectory() as parent, portal(answers_of_the_month(REFUSED)) as address, endpoint() as crm:
        data = Path(parent) / "data"
        prepare(data, {})

        def done(hour: str, *arguments: str, exit_code: int = 0) -> None:
            code, said = run(data, address, f"2026-11-18 {hour}:00", *arguments, crm=crm)
            assert code == exit_code, said

        done("07:00", "backfill", "--from", DAYS[0], "--to", DAYS[-1], exit_code=1)
        push(data, address, "pushed-and-published")
        done("07:20", "backfill", "--from", DAYS[-1], "--to", DAYS[-1])
        done("07:25", "backfill", "--kind", "inventory", "--from", NEW_DAY, "--to", NEW_DAY)
        done("07:30", "deliver")
        before = published(data)
        [objecting, *_] = addresses(data, HIDDEN)
        erased, corrected, restricted, *_ = [one for one in addresses(data, CUSTOMERS) if one != objecting]
        ids = {name: ids_of(data, one) for name, one in (("erased", erased), ("restricted", restricted))}
        ids["corrected"] = ids_of(data, corrected)
        done("07:40", "privacy", "erase", "--email", erased, "--yes")
        done("07:45", "privacy", "correct", "--email", corrected, "--new-email", RIGHT)
        done("07:50", "privacy", "object", "--email", objecting)
        done("07:55", "privacy", "restrict", "--email", restricted)
        push(data, address, "pushed-and-waiting")

        after = published(data)
        truth = {
            "leads": after,
            "objecting": objecting,
            "delivered": sorted(crm.delivered),
            **ids,
        }
        assert set(before["applicant"]) - set(after["applicant"]) == {*ids["erased"], *ids["restricted"]}
        (Path(parent) / "truth.json").write_text(json.dumps(truth))
        with tarfile.open(FOLDER, "w:xz", preset=9) as archive:
            for name in ("data", "truth.json"):
                archive.add(Path(parent) / name, name, filter=kept)


def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out locks, tokens, and of Dagster's home all but dagster.yaml."""
    parts = Path(member.name).parts
    is_of_dagster = ".dagster" in parts and len(parts) > 2 and parts[-1] != "dagster.yaml"
    return None if {"locks", "tokens"} & set(parts) or is_of_dagster else member


def push(data: Path, address: str, lead_id: str) -> None:
    """Deliver a lead of the last day to a receiver of this folder."""
    lead = {"id": lead_id, "createdAt": f"{DAYS[-1]}T10:00:00Z", "contact": {"email": f"{lead_id}@people.example"}}
    port = free_port()
    more = {"LEADS_RECEIVE_KEY": KEY, **BRANCHES}
    process = subprocess.Popen(
        [executable(), "receive", "--port", f"{port}"],
        cwd=data.parent,
        env=environment(data, address, "2026-11-18 07:10:00", **more),
        start_new_session=True,
    )
    try:
        answered(Request(f"http://127.0.0.1:{port}/leads", json.dumps({"applicants": [lead]}).encode(), headers()))
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)
        remove_shared_clock(process.pid)


def headers() -> Mapping[str, str]:
    return {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}


def answered(request: Request) -> None:
    for _ in range(240):
        try:
            urlopen(request)  # noqa: S310 - our own address
            return
        except HTTPError:
            raise
        except URLError:
            time.sleep(0.5)
    raise AssertionError("The receiver doesn't answer.")


def published(data: Path) -> dict[str, list[str]]:
    """The ids of the leads by kind."""
    query = "select lead_id from {}_leads order by 1"
    return {kind: addresses(data, query.format(kind)) for kind in ("applicant", "appraisal")}


def ids_of(data: Path, email: str) -> list[str]:
    return addresses(data, f"select lead_id from applicant_leads where contact_email = '{email}' order by 1")  # noqa: S608


def addresses(data: Path, query: str) -> list[str]:
    with duckdb.connect(str(data / "leads.duckdb"), read_only=True) as db:
        return [one for (one,) in db.sql(query).fetchall()]


if __name__ == "__main__":
    main()

"""Two machines with one bucket and one Postgres: each is killed once, a person is erased, nothing
is lost or doubled.

Belongs here: commands, files, DuckDB and Delta tables as users see them. Doesn't: what a store
promises.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import deltalake
import pyarrow.parquet as pq
import pytest

from leads_pipeline_tests.support.analyst import query
from leads_pipeline_tests.support.buckets import KEYS, made_bucket, running_moto
from leads_pipeline_tests.support.newcomer import BIN, Newcomer, newcomer
from leads_pipeline_tests.support.postgres import running_postgres

pytest.importorskip(
    "dagster_postgres", reason="dagster-postgres isn't installed (make lint installs it)"
)

KINDS = ("applicant", "appraisal")
DAYS = 8


class Bucket:
    """A bucket as anybody sees it who has the keys."""

    def __init__(self, server: str) -> None:
        import boto3

        self.name = made_bucket(server)
        key_id, secret, region = KEYS.values()
        self._client = boto3.client(
            "s3",
            endpoint_url=server,
            aws_access_key_id=key_id,
            aws_secret_access_key=secret,
            region_name=region,
        )
        self.variables = {**KEYS, "AWS_ENDPOINT_URL": server}

    def keys(self, prefix: str = "") -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self.name, Prefix=f"leads/{prefix}"
        )
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

    def raw_leads(self) -> Iterator[dict[str, Any]]:
        """Every row of every raw file."""
        for key in self.keys("raw/"):
            content = self._client.get_object(Bucket=self.name, Key=key)["Body"].read()
            yield from pq.ParquetFile(BytesIO(content)).read().to_pylist()

    def delta_ids(self, kind: str) -> list[str]:
        """The ids in the Delta table of that kind, in order."""
        log = f"/{kind}_leads/_delta_log/"
        [folder] = {key.partition("/_delta_log/")[0] for key in self.keys() if log in key}
        options = {**self.variables, "AWS_ALLOW_HTTP": "true"}
        table = deltalake.DeltaTable(f"s3://{self.name}/{folder}", storage_options=options)
        ids: list[Any] = table.to_pyarrow_table()["lead_id"].to_pylist()
        return sorted(ids)


def kill(machine: Newcomer, moment: Callable[[], bool], *command: str) -> None:
    """Start the command, and kill it at that moment, which must come before its end."""
    process = subprocess.Popen(
        [str(BIN / command[0]), *command[1:]],
        cwd=machine.folder,
        env=machine.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while not moment():
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def some_person(machine: Newcomer) -> tuple[str, dict[str, set[str]]]:
    """The address of a person with an applicant lead, and the ids of all theirs by kind."""
    file = machine.folder / "data" / "leads.duckdb"
    [(email,)] = query(file, "select max(contact_email) from applicant_leads")
    hers = {}
    for kind in KINDS:
        found = query(file, f"select lead_id from {kind}_leads where contact_email = ?", email)  # noqa: S608 - our own name
        hers[kind] = {lead_id for (lead_id,) in found}
    return email, hers


def backfill(first: date, last: date) -> tuple[str, ...]:
    return ("leads-pipeline", "backfill", "--from", str(first), "--to", str(last))


def test_two_machines_lose_and_double_nothing_over_kills_and_an_erasure(tmp_path: Path) -> None:
    slow = tmp_path / "faults.json"
    slow.write_text('{"rules": [{"name": "slow", "then": {"latency_ms": 500}}]}')
    with (
        running_postgres() as postgres,
        running_moto() as server,
        newcomer(
            tmp_path / "one", "--branches", "2", "--leads-per-day", "6", "--faults", str(slow)
        ) as one,
    ):
        bucket = Bucket(server)
        two = Newcomer(tmp_path / "two", one.credentials)
        two.folder.mkdir()
        for machine in (one, two):
            machine.fill_in()
            machine.exported.update(bucket.variables)
            machine.exported.update(
                LEADS_DATA_DIR=f"s3://{bucket.name}/leads",
                LEADS_WORK_DIR=str(machine.folder / "data"),
                LEADS_DAGSTER_POSTGRES_URL=postgres.url,
            )
        one.exported["LEADS_TABLES"] = "delta"
        last = datetime.now(ZoneInfo("Europe/London")).date() - timedelta(days=2)
        first = last - timedelta(days=DAYS - 1)
        asked = {kind: one.truth(kind, first, last) for kind in KINDS}
        assert all(asked.values())

        kill(one, lambda: len(bucket.keys("raw/")) > 3, *backfill(first, last))
        landed = len(bucket.keys("raw/"))
        assert landed < 2 * 2 * DAYS, "everything had landed; make the portal slower"
        kill(
            two,
            lambda: any((two.folder / "data" / ".versions").glob("draft*")),
            *backfill(first, last),
        )
        for machine in (two, one):
            done = machine.run(*backfill(first, last))
            assert done.returncode == 0, done.stderr
        for kind in KINDS:
            assert one.published(kind) == two.published(kind) == asked[kind]
            assert bucket.delta_ids(kind) == sorted(asked[kind])

        email, hers = some_person(two)
        erased = two.run("leads-pipeline", "privacy", "erase", "--email", email, "--yes")
        # The Delta tables are the other machine's.
        assert erased.returncode == 1, erased.stdout + erased.stderr
        assert "on the machine that has LEADS_TABLES=delta" in " ".join(erased.stderr.split())
        followed = one.run("leads-pipeline", "privacy", "apply")
        assert followed.returncode == 0, followed.stdout + followed.stderr
        # The portal still serves her leads.
        done = two.run(*backfill(first, last))
        assert done.returncode == 0, done.stderr
        for kind in KINDS:
            left = asked[kind] - hers[kind]
            assert one.published(kind) == two.published(kind) == left
            assert bucket.delta_ids(kind) == sorted(left)
        raw = list(bucket.raw_leads())
        everybody = set().union(*asked.values())
        assert {row["lead_id"] for row in raw} == everybody.difference(*hers.values())
        assert not [row["lead_id"] for row in raw if email in row["payload"]]

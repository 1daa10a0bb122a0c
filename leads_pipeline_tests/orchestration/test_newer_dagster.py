"""A Dagster home that a newer Dagster has written to."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from dagster import DagsterInstance

from leads_pipeline.errors import StorageError
from leads_pipeline.simulator.app import Config
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.installation import installation
from leads_pipeline_tests.support.newcomer import free_port


@pytest.mark.parametrize("database", ["runs.db", "runs/index.db"])
def test_dagster_s_state_of_a_newer_version_is_left_as_it_is_by_every_command_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    with installation(tmp_path, Config(branches=1, leads_per_day=3), first=4) as here:
        home = Path(here.environment["DAGSTER_HOME"])
        here.pull([here.key(2)])
    monkeypatch.chdir(tmp_path)
    for name, value in here.environment.items():
        monkeypatch.setenv(name, value)
    assert run("status").exit_code == 0
    path = home / "history" / database
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("update alembic_version set version_num = 'fedcba987654'")
    before = {path: path.read_bytes() for path in home.rglob("*.db")}
    for command in (
        ("backfill", "--from", here.day(2), "--to", here.day(2)),
        ("serve", "--port", free_port()),
    ):
        result = run(*command)
        assert result.exit_code != 0
        assert "A newer Dagster than" in result.output
        assert "fedcba987654" in result.output
    with pytest.raises(StorageError, match="A newer Dagster than"):
        DagsterInstance.from_config(str(home))  # as Dagster's own processes open it
    assert {path: path.read_bytes() for path in home.rglob("*.db")} == before

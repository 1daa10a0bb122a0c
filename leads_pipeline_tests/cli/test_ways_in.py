"""Every way in that the README names, walked by somebody new: an `.env`, a bare shell, a portal
elsewhere.

Doesn't belong here: the wheel. `make wheel` tries it where nothing of the checkout is.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from leads_pipeline.orchestration.names import SERVED
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.newcomer import Newcomer, copy_checkout, newcomer, wait_for
from leads_pipeline_tests.support.serving import free_port

KINDS = ("applicant", "appraisal")


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    with newcomer(
        tmp_path_factory.mktemp("portal"), "--branches", "2", "--leads-per-day", "3"
    ) as somebody:
        yield somebody


@pytest.fixture
def me(portal: Newcomer, tmp_path: Path) -> Newcomer:
    return Newcomer(tmp_path, portal.credentials)


# --- the env file ---------------------------------------------------------------------------------


def test_an_env_file_may_be_written_in_any_editor_and_gives_way_to_what_the_shell_fills_in(
    tmp_path: Path,
) -> None:
    (tmp_path / ".env").write_text(
        "export LEADS_TIMEZONE=Europe/London\nexport LEADS_MAX_CONCURRENCY=4\n",
        encoding="utf-8-sig",
        newline="\r\n",
    )
    os.environ.update(LEADS_TIMEZONE=" ", LEADS_MAX_CONCURRENCY="6")

    shown = json.loads(run("settings", "--json").stdout)

    assert shown["LEADS_TIMEZONE"]["value"] == "Europe/London"
    assert shown["LEADS_MAX_CONCURRENCY"]["value"] == "6"


# --- the daemon -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [("leads-pipeline", "dev"), ("dg", "dev"), ("dagster", "dev", "-w", "workspace.yaml")],
    ids=lambda command: command[0],
)
def test_a_daemon_pulls_stages_and_publishes_by_itself_what_an_env_file_leads_to(
    me: Newcomer, command: tuple[str, ...]
) -> None:
    me.fill_in()
    if command[0] != "leads-pipeline":
        copy_checkout(me.folder)
        # As if somebody had started the schedules and sensors.
        me = replace(me, exported={SERVED: "yes"})
    # Today and yesterday are left to the schedules.
    today = datetime.now(ZoneInfo("Europe/London")).date()
    first = today - timedelta(days=29)
    last = today - timedelta(days=2)
    # The oldest are deleted while the daemon works.
    before = {kind: me.truth(kind) for kind in KINDS}
    with me.running(*command, "--port", str(free_port())) as log:
        wait_for(lambda: all(me.published(kind) >= me.truth(kind, first, last) for kind in KINDS))
        # Dagster's own commands forget their runs at the end, and our code location says so.
        assert ("DAGSTER_HOME is not set" in log.read_text()) == (command[0] != "leads-pipeline")
    for kind in KINDS:
        assert me.published(kind) <= before[kind] | me.truth(kind)

"""Every way in that the README names, walked by somebody new: an `.env`, a bare shell, a portal
elsewhere.

Doesn't belong here: the wheel. `make wheel` tries it where nothing of the checkout is.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from leads_pipeline.orchestration.names import SERVED
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


def findings(me: Newcomer) -> dict[str, str]:
    """What the doctor says should be done, but for the simulator's new fields."""
    told = {}
    for finding in json.loads(me.run("leads-pipeline", "doctor", "--json").stdout)["findings"]:
        is_new_field = finding["check"].startswith("drift/")
        if finding["light"] in ("yellow", "red") and not is_new_field:
            told[finding["check"]] = finding["message"]
    return told


# --- the env file ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_env_file_may_be_written_in_any_editor_and_for_a_shell(me: Newcomer) -> None:
    me.fill_in()
    file = me.folder / ".env"
    text = file.read_text().replace("\nLEADS_", "\nexport LEADS_")
    file.write_text(text, encoding="utf-8-sig", newline="\r\n")

    assert findings(me) == {}


@pytest.mark.slow
def test_an_empty_variable_of_the_shell_lets_the_env_file_say_it_and_a_filled_in_one_does_not(
    me: Newcomer,
) -> None:
    me.fill_in()
    empty = {"LEADS_CLIENT_SECRET": "", "LEADS_CLIENT_SECRET_FILE": " ", "DAGSTER_HOME": ""}
    assert findings(Newcomer(me.folder, me.credentials, exported=empty)) == {}
    wrong = findings(Newcomer(me.folder, me.credentials, exported={"LEADS_CLIENT_SECRET": "wrong"}))
    assert wrong.keys() == {"token", "applicant leads", "appraisal leads"}


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

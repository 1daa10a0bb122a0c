"""`doctor`: each thing that can be wrong has a line that says what happened and what to do."""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner, Result

from leads_pipeline.cli import main
from leads_pipeline.cli.settings import OURS
from leads_pipeline.errors import SettingsError
from leads_pipeline.features.doctor.questions import ask_folder, ask_leads, ask_settings
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.health.facts import Facts
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.publications import Publications
from leads_pipeline.settings import Settings
from leads_pipeline.simulator.app import Config, Simulator
from leads_pipeline.simulator.server import running
from leads_pipeline_tests.support.house import House
from leads_pipeline_tests.support.people import listed

# Dagster calls what it has deprecated itself.
pytestmark = pytest.mark.filterwarnings(
    r"ignore:InitResourceContext\.dagster_run:DeprecationWarning"
)

UNUSED = "http://127.0.0.1:9"  # the discard port: nothing listens there


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with running(Config(branches=3, leads_per_day=2)) as simulator:
        yield simulator


@pytest.fixture
def variables(simulator: Simulator, tmp_path: Path) -> dict[str, str]:
    """An installation with all that doctor asks for, and nothing pulled yet."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    return {
        **simulator.environment(),
        "LEADS_DATA_DIR": str(folder),
        "LEADS_KEEP_PERSONAL_DAYS": "365",
        "LEADS_TIMEZONE": "Europe/London",
        "LEADS_ALERT_WEBHOOK": UNUSED,
        "LEADS_HEARTBEAT_URL": UNUSED,
    }


def call(variables: Mapping[str, str], *options: str, **changes: str | None) -> Result:
    # The seeds of these tests, for one.
    foreign = dict.fromkeys(name for name in os.environ if name.startswith(OURS))
    return CliRunner().invoke(
        main, ["doctor", *options], env={**foreign, **variables, **changes}, color=False
    )


@dataclass(frozen=True)
class Found:
    """Lights and messages of the lines, by check."""

    lights: dict[str, str]
    messages: dict[str, str]
    exit_code: int


def found(variables: Mapping[str, str], **changes: str | None) -> Found:
    result = call(variables, "--json", **changes)
    seen = json.loads(result.stdout)["findings"]
    lights = {one["check"]: one["light"] for one in seen}
    return Found(lights, {one["check"]: one["message"] for one in seen}, result.exit_code)


def test_each_question_has_a_line_and_a_fresh_installation_has_nothing_above_hints(
    variables: dict[str, str],
) -> None:
    result = call(variables)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line for line in lines if not line.startswith(("green ", "hint "))] == []
    assert [line.split(maxsplit=1)[1].split(":")[0] for line in lines] == [
        "settings",
        "clock",
        "secret",
        "token",
        "applicant leads",
        "appraisal leads",
        "inventory",
        "data folder",
        "source",
        "file system",
        "file rights",
        "backup",
        "windows-missing/first",
        "findings",
    ]


@pytest.mark.parametrize(
    ("variable", "value", "check", "words"),
    [
        ("LEADS_CLIENT_SECRET", "wrong", "token", "ask the portal's technical contact"),
        ("LEADS_BRANCH_IDS", "101,999,998", "appraisal leads", "(branch-998, branch-999)."),
    ],
)
def test_what_is_wrong_is_found_and_what_to_do_is_said(
    variables: dict[str, str], variable: str, value: str, check: str, words: str
) -> None:
    seen = found(variables, **{variable: value})

    assert seen.lights[check] == "red"
    assert words in seen.messages[check]
    assert seen.exit_code == 1


def test_delta_tables_without_their_package_are_told_with_how_to_install_it(
    variables: dict[str, str], house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leads are published all the same."""
    monkeypatch.setitem(sys.modules, "deltalake", None)  # as if it weren't there

    seen = found(variables, LEADS_TABLES="delta")
    assert seen.lights["Delta tables"] == "red"
    assert "uv pip install -c requirements.lock -e '.[delta]'" in seen.messages["Delta tables"]

    house.tables_as = "delta"
    house.land("applicant", [{"id": "a"}])
    with pytest.raises(AssertionError):  # the house takes no trouble
        house.publish()
    assert house.leads("applicant").keys() == {"a"}


def test_a_full_disk_is_found_when_the_file_system_is_tried(
    variables: dict[str, str], small_disk: Path
) -> None:
    (small_disk / "data").mkdir()
    with suppress(OSError):
        (small_disk / "fill").write_bytes(bytes(2_000_000))

    seen = found(variables, LEADS_DATA_DIR=str(small_disk / "data"))

    assert seen.lights["file system"] == "red"
    assert (
        f"The file system {small_disk} is full: 0.0 of 1 MB are free."
        in seen.messages["file system"]
    )


def test_a_secret_that_was_pasted_with_more_is_told_and_never_shown(
    variables: dict[str, str],
) -> None:
    seen = found(variables, LEADS_CLIENT_SECRET='"made-up"')

    assert seen.lights["secret"] == "yellow"
    assert "Was it pasted with it?" in seen.messages["secret"]
    assert not any("made-up" in message for message in seen.messages.values())


def missing() -> NoReturn:
    raise SettingsError("No secret.")


def test_a_clock_that_is_off_is_found(variables: dict[str, str]) -> None:
    facts = Facts(
        Settings.from_variables(variables), DataFolder.at(Path("data")), datetime.now(UTC)
    )
    seen = ask_leads(facts, missing, missing, lambda: datetime.now(UTC) + timedelta(seconds=400))
    [clock] = [one for one in seen if one.check == "clock"]
    assert clock.light == "red"
    assert "timedatectl" in clock.message


# --- the data folder ------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_made_is_red_and_the_data_is_not_looked_at(
    variables: dict[str, str],
) -> None:
    seen = found(variables, LEADS_DATA_DIR="/proc/leads")
    assert "set LEADS_DATA_DIR" in seen.messages["data folder"]
    assert [*seen.lights][-1] == "data folder"


def others_portal(data: DataFolder) -> None:
    data.state.claim("portal.example")


def open_leads(data: DataFolder) -> None:
    (data.folder / "raw").mkdir()
    (data.folder / "raw").chmod(0o755)
    data.folder.chmod(0o755)


def link_without_its_file(data: DataFolder) -> None:
    data.state.note_landed()
    Publications(published_at=datetime.now(UTC)).write(data.state.path)
    (data.folder / "leads.duckdb").symlink_to(".versions/gone")


def list_without_its_key(data: DataFolder) -> None:
    listed(list_of(data))
    (list_of(data).folder / "key").unlink()


@pytest.mark.parametrize(
    ("harm", "check", "light", "words"),
    [
        (others_portal, "source", "red", "holds leads from portal.example"),
        (open_leads, "file rights", "yellow", "chmod o= "),
        (link_without_its_file, "leads-duckdb", "red", "leads.duckdb is missing."),
        (list_without_its_key, "finder-failed/suppression-list", "red", "key"),
    ],
)
def test_harm_to_the_data_folder_has_a_line_with_a_remedy(
    variables: dict[str, str],
    harm: Callable[[DataFolder], None],
    check: str,
    light: str,
    words: str,
) -> None:
    data = DataFolder.at(Path(variables["LEADS_DATA_DIR"]))
    harm(data)

    facts = Facts(Settings.from_variables(variables), data, datetime.now(UTC))
    [seen] = [one for one in ask_folder(facts) if one.check == check]
    assert seen.light == light
    assert words in seen.message


def test_an_env_file_that_others_can_read_is_found() -> None:
    # Nobody else gets into pytest's own folders.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ".env"
        path.write_text("LEADS_CLIENT_SECRET=s\n")
        path.parent.chmod(0o755)
        path.chmod(0o644)
        [_, open_for_all] = ask_settings(Settings.from_variables({}), path)

    assert open_for_all.light == "yellow"
    assert f"chmod 600 {path}" in open_for_all.message

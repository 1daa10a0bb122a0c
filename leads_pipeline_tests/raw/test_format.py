"""A folder that another version wrote is refused before anything is written, a new one gets a number."""

import os
from pathlib import Path
from typing import Final

import pytest
from dagster import DagsterInstance, build_init_resource_context

from leads_pipeline.cli.installation import open_folder
from leads_pipeline.errors import SettingsError
from leads_pipeline.orchestration.resources import DataFolderResource
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.rows import FORMAT
from leads_pipeline.settings import Settings
from leads_pipeline_tests.support.command_line import FOR_ANY_COMMAND, NOBODY, run
from leads_pipeline_tests.support.serving import free_port

WINDOW: Final = "raw/applicant_leads/day=2026-11-19/scope=branch-101"

NEWER: Final = {".state/raw_format": f"{FORMAT + 1}\n", f"{WINDOW}/of-tomorrow.leads": "leads"}
OTHERS: Final = {
    "a newer number": NEWER,
    "a window": {f"{WINDOW}/leads.parquet": "PAR1"},
    "pushed leads that waited": {
        "spool/20261119T120000.000000Z-ab.pushed": "leads",
        "raw/.keep": "",
    },
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the settings name. The working directory is beside it."""
    here = tmp_path / "here"
    (here / "source" / ".state").mkdir(parents=True)
    monkeypatch.chdir(here)
    variables = {
        **FOR_ANY_COMMAND,
        "LEADS_DATA_DIR": str(tmp_path / "data"),
        "LEADS_ALERT_WEBHOOK": NOBODY,
        "LEADS_KEEP_PERSONAL_DAYS": "35",
    }
    os.environ.update(variables)
    return tmp_path / "data"


# One of each way to come to the data folder.
COMMANDS: Final = (
    "backfill --last 1d",
    "backup backups",
    "coverage",
    "deliver",
    "doctor",
    "export all --to exports --format csv",
    "dev --port PORT",
    "privacy erase --email jane@people.example --yes",
    "privacy retain",
    "receive --port 0",
    "report",
    "restore source",
    "serve --port PORT",
    "status",
    "verify",
)


def write(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Each file and folder with the moment of its last change and its content."""
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in [folder, *folder.rglob("*")]
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_refuse_the_files_of_another_version_in_one_sentence_and_touch_nothing(
    folder: Path, command: str
) -> None:
    for name in ("a newer number", "a window"):
        there = folder.with_name(name.replace(" ", "-"))
        write(there, OTHERS[name])
        os.environ["LEADS_DATA_DIR"] = str(there)
        before = tree(folder.parent)

        done = run(*command.replace("PORT", str(free_port())).split())

        assert done.exit_code == 2, done.output
        lines = [line for line in done.output.splitlines() if str(there) in line]
        assert len(lines) == 1, done.output
        [line] = lines
        assert "of leads-pipeline" in line
        assert line.count(". ") <= 1  # doctor adds that nothing else was checked
        assert tree(folder.parent) == before


def test_a_restore_refuses_the_backup_of_another_version(folder: Path) -> None:
    for name, files in OTHERS.items():
        source = folder.with_name(name) / "2026-11-19T070000Z"
        write(source, {".state/person_key": "5eed" * 16, **files})
        before = tree(folder.parent)

        done = run("restore", source.parent)

        assert done.exit_code == 2
        assert f"{source} has " in done.output
        assert tree(folder.parent) == before


@pytest.mark.parametrize("files", OTHERS.values(), ids=OTHERS.keys())
def test_runs_and_sensors_refuse_the_folder_of_another_version(
    folder: Path, files: dict[str, str]
) -> None:
    write(folder, files)
    before = tree(folder)
    resource = DataFolderResource.of(Settings.from_variables(os.environ))

    with (
        DagsterInstance.ephemeral() as instance,
        pytest.raises(SettingsError, match="of leads-pipeline"),
    ):
        resource.create_resource(build_init_resource_context(instance=instance))

    assert tree(folder) == before


def test_a_new_folder_gets_the_number_and_keeps_it(folder: Path) -> None:
    settings = Settings.from_variables(os.environ)

    for _ in range(2):
        open_folder(settings)

    assert (folder / ".state" / "raw_format").read_text() == f"{FORMAT}\n"
    DataFolder.of(settings).want_format()


def test_a_folder_without_a_number_opens_if_its_names_are_of_today(folder: Path) -> None:
    write(folder, {f"{WINDOW}/1794985215724783-closed-22-f9bc2f523253a2e5.parquet": ""})

    open_folder(Settings.from_variables(os.environ))

    assert (folder / ".state" / "raw_format").exists()

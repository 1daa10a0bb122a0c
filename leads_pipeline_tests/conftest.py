"""What holds for every test: no setting of the developer's own, and no deadline on a busy machine; the fault matrix."""

import os
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from alembic.config import Config as AlembicConfig
from alembic.script import ScriptDirectory
from hypothesis import settings

from leads_pipeline_tests.chaos.matrix import Injections, rows
from leads_pipeline_tests.turn import SEED_VARIABLE, Turn, imported_files

# Set here, so that all workers of pytest-xdist have the same.
os.environ.setdefault(SEED_VARIABLE, str(random.SystemRandom().randrange(10**9)))

# A test must neither depend on the variables of whoever runs it nor reach their portal or their Dagster.
for name in list(os.environ):
    if name.startswith(("LEADS_", "INVENTORY_")) or name == "DAGSTER_HOME":
        del os.environ[name]

# Hypothesis' deadline of 200 ms for one example measures the machine, not the code.
settings.register_profile("leads_pipeline", deadline=None)
settings.load_profile("leads_pipeline")

# Dagster has Alembic read its hundred migrations for every database that it opens, each run's among them: a fifth of
# such a test's CPU time (measured). They stay the same, so one reading is enough.
_read_migrations = ScriptDirectory.from_config
_migrations: dict[str, ScriptDirectory] = {}


def _migrations_read_once(config: AlembicConfig) -> ScriptDirectory:
    place = str(config.get_main_option("script_location"))
    if place not in _migrations:
        _migrations[place] = _read_migrations(config)
    return _migrations[place]


ScriptDirectory.from_config = _migrations_read_once  # type: ignore[method-assign]

_counts = pytest.StashKey[Counter[tuple[str, str]]]()
_turn = pytest.StashKey[Turn]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fault-matrix", action="store_true", help="print the fault matrix; fail where a row has no test")
    parser.addoption("--minutes", type=float, help="begin no further test after that long, in the order of turn.py")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_counts] = Counter()
    config.stash[_turn] = Turn(config.getoption("--minutes"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items[:] = config.stash[_turn].ordered(items, lambda item: item.nodeid, lambda item: imported_files(item.path))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.config.stash[_turn].is_over:
        pytest.skip("not in this turn")


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Take back what a test changes in the environment: commands set Dagster's home, for what they start."""
    with patch.dict(os.environ):
        yield


@pytest.fixture
def injected(record_property: Callable[[str, object], None]) -> Iterator[Injections]:
    """Counts the faults of chaos/matrix.py that a test injects: `injected("busy", "429 bare")`."""
    injections = Injections()
    yield injections
    # A property of the report reaches the summary from the workers of pytest-xdist too.
    for (area, fault), times in injections.counts.items():
        record_property("fault", (area, fault, times))


def pytest_report_teststatus(report: pytest.TestReport, config: pytest.Config) -> None:
    if report.when == "teardown":
        for name, value in report.user_properties:
            if name == "fault":
                assert isinstance(value, list | tuple)  # a list where it came from a worker, as JSON
                config.stash[_counts][value[0], value[1]] += value[2]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if _missing(session.config) and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("--fault-matrix"):
        return
    terminalreporter.section("faults injected")
    for area, fault, times in rows(config.stash[_counts]):
        terminalreporter.write_line(f"{times:>8,}  {area}: {fault}")
    terminalreporter.write_line(f"{sum(config.stash[_counts].values()):>8,}  in all")
    terminalreporter.write_line(
        f"{SEED_VARIABLE}={os.environ[SEED_VARIABLE]} repeats the seeded histories, and a turn."
    )
    if missing := _missing(config):
        terminalreporter.write_line(f"{len(missing)} rows have no test: {', '.join(missing[:5])} ...", red=True)


def _missing(config: pytest.Config) -> list[str]:
    """Rows of the matrix that nothing was injected for, where all of it was to be."""
    is_whole = config.getoption("--fault-matrix") and config.getoption("--minutes") is None
    if not is_whole or hasattr(config, "workerinput"):
        return []
    return [f"{area}: {fault}" for area, fault, times in rows(config.stash[_counts]) if not times]


@pytest.fixture(scope="module")
def sharing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose file system lets files share blocks."""
    folder = tmp_path_factory.mktemp("sharing")
    image, mounted = folder / "image", folder / "mounted"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(400 << 20)
    try:
        subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", image], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", image, mounted], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"No XFS can be made and mounted here: {error}")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", mounted], check=True)

"""What holds for every test: no setting of the developer's own, no deadline on a busy machine, one
seed.
"""

import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import chdir, closing
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import settings

from leads_pipeline_tests.support.buckets import running_moto
from leads_pipeline_tests.support.house import House
from leads_pipeline_tests.support.publications import Folder
from leads_pipeline_tests.support.raw_server import RawServer

# The seed of the tests that choose at random. It is set here, so that all workers of pytest-xdist
# have the same.
SEED_VARIABLE = "CHAOS_SEED"
os.environ.setdefault(SEED_VARIABLE, str(random.SystemRandom().randrange(10**9)))

CHAOS = Path(__file__).parent / "chaos"

# A test must neither depend on the variables of whoever runs it nor reach their portal or their
# Dagster. Without compiled modules, each program that a test starts would compile Dagster: 3
# seconds of CPU (measured).
for name in list(os.environ):
    if name.startswith(("LEADS_", "INVENTORY_")) or name in (
        "DAGSTER_HOME",
        "PYTHONDONTWRITEBYTECODE",
    ):
        del os.environ[name]
sys.dont_write_bytecode = False

# One certificate, of nobody. To read the usual 140 takes each client 50 ms (measured).
os.environ["SSL_CERT_FILE"] = str(CHAOS.parent / "support/authority.pem")

# Hypothesis' deadline of 200 ms for one example measures the machine, not the code.
settings.register_profile("leads_pipeline", deadline=None)
settings.load_profile("leads_pipeline")

_ends_at = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--minutes", type=float, help="begin no test after that time; the seed decides the order"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_ends_at] = time.monotonic() + 60 * (config.getoption("--minutes") or math.inf)


def pytest_report_header() -> str:
    return (
        f"{SEED_VARIABLE}={os.environ[SEED_VARIABLE]} repeats the tests with a seed, and the order "
        "of --minutes."
    )


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(CHAOS):
            item.add_marker("chaos")
    if config.getoption("--minutes"):
        items.sort(
            key=lambda item: random.Random(f"{os.environ[SEED_VARIABLE]} {item.nodeid}").random()  # noqa: S311
        )


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.monotonic() > item.config.stash[_ends_at]:
        pytest.skip("not in this sample (--minutes)")


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path) -> Iterator[None]:
    """Each test works in its own folder, away from an `.env` of the developer's. What it changes in
    the environment is taken back: commands set Dagster's home, for what they start.
    """
    with patch.dict(os.environ), chdir(tmp_path):
        yield


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """The address of a server that speaks S3."""
    with running_moto() as address:
        yield address


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"No small file system can be mounted here: {error}")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A data folder that the tests work on in this process."""
    return House(tmp_path / "house" / "data")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A data folder whose raw windows are in memory."""
    data = tmp_path / "data"
    data.mkdir()
    return Folder(data)


@pytest.fixture
def raw_server() -> Iterator[RawServer]:
    with closing(RawServer()) as server:
        yield server

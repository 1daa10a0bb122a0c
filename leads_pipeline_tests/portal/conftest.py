"""gpg and a key of the agency, made once: a key takes a second."""

from collections.abc import Iterator

import pytest

from leads_pipeline_tests.support.gpg import Gpg, running_gpg


@pytest.fixture(scope="session")
def gpg() -> Iterator[Gpg]:
    with running_gpg() as gpg:
        yield gpg


@pytest.fixture(scope="session")
def key(gpg: Gpg) -> bytes:
    return gpg.make_key("agency")

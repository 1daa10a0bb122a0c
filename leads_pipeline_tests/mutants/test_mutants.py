"""Every mutant still applies."""

import pytest

from leads_pipeline_tests.mutants import broken  # noqa: F401 - it declares them
from leads_pipeline_tests.mutants.patching import MUTANTS, check


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_still_applies(name: str) -> None:
    check(MUTANTS[name])

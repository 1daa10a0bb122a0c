"""Weeks of mishaps, and each look at a window in time."""

import pytest

from leads_pipeline_tests.support.fetches import Weeks


@pytest.mark.parametrize("seed", range(40))
def test_each_look_happens_within_a_day_of_good_time(seed: int) -> None:
    Weeks(seed, branches=3).pass_and_judge()

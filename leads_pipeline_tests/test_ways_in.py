"""Every way in that the README names, walked by somebody new: an `.env`, a bare shell, a portal elsewhere."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from leads_pipeline_tests.newcomer import Newcomer, free_port, newcomer, wait_for

KINDS = ("applicant", "appraisal")


@pytest.fixture
def me(tmp_path: Path) -> Iterator[Newcomer]:
    with newcomer(tmp_path, "--branches", "2", "--leads-per-day", "3") as somebody:
        yield somebody


@pytest.mark.chaos
def test_dev_pulls_stages_and_publishes_by_itself_what_an_env_file_leads_to(me: Newcomer) -> None:
    me.fill_in()
    # Until then the daemon leaves today and yesterday to the schedules.
    with me.running("leads-pipeline", "dev", "--port", str(free_port())):
        wait_for(lambda: all(len(me.published(kind)) > 0.8 * len(me.asked(kind)) for kind in KINDS), 300)
    for kind in KINDS:
        assert me.published(kind) <= me.asked(kind)

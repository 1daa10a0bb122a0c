"""What `serve` and `dev` print of Dagster's log."""

import pytest
from dagster import Definitions, Failure, asset, in_process_executor

from leads_pipeline.cli.dagster_log import readable


def test_a_failed_run_is_its_address_and_a_line_for_each_cause(capfd: pytest.CaptureFixture[str]) -> None:
    @asset
    def raw() -> None:
        raise Failure("3 of 6 windows failed.\nrefused (403): 3", allow_retries=False)

    run = (
        Definitions([raw], executor=in_process_executor)
        .resolve_implicit_global_asset_job_def()
        .execute_in_process(
            raise_on_error=False, run_config={"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
        )
    )
    written = capfd.readouterr().err.splitlines()
    assert any(line.startswith("Stack Trace:") for line in written), "Dagster logs it in the known form"
    written.insert(0, "2026-11-27 07:51:45 +0000 - dagster - INFO - pull_leads - 35b3bab8 - raw - Pulling 6 windows.")
    first, *causes = readable(written, "http://127.0.0.1:3000")
    assert first.split(" ", 1)[1] == f"raw failed: http://127.0.0.1:3000/runs/{run.run_id}"
    assert causes == ["  3 of 6 windows failed.", "  refused (403): 3"]


def test_other_lines_stay() -> None:
    lines = [
        "2026-11-27 07:51:45 +0000 - dagster.daemon.SensorDaemon - WARNING - It is slow.",
        "",
        "Segmentation fault",
    ]
    assert list(readable(lines, "")) == ["07:51:45 It is slow.", "  Segmentation fault"]

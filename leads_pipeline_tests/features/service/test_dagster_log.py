"""What `serve` and `dev` print of Dagster's log."""

import os
import signal
from pathlib import Path
from threading import Thread

import pytest
from dagster import (
    AssetExecutionContext,
    AssetKey,
    Definitions,
    ExecuteInProcessResult,
    Failure,
    asset,
    in_process_executor,
)

from leads_pipeline.features.service.dagster_log import readable
from leads_pipeline.simulator.faults import Then
from leads_pipeline_tests.support.newcomer import wait_for
from leads_pipeline_tests.support.pulls import Pipeline, pipeline


def test_a_failed_run_is_its_address_and_a_line_for_each_cause(
    capfd: pytest.CaptureFixture[str],
) -> None:
    @asset
    def raw(context: AssetExecutionContext) -> None:
        context.log.info("Pulling 6 windows.")
        raise Failure("3 of 6 windows failed.\nrefused (403): 3", allow_retries=False)

    job = Definitions([raw], executor=in_process_executor).resolve_implicit_global_asset_job_def()
    config = {"loggers": {"console": {"config": {"log_level": "INFO"}}}}
    run = job.execute_in_process(raise_on_error=False, run_config=config)
    written = capfd.readouterr().err.splitlines()

    first, *causes = readable(written, "http://127.0.0.1:3000")

    assert "Stack Trace" in "".join(written), "Dagster logs it in the known form"
    assert first.endswith(f" raw failed: http://127.0.0.1:3000/runs/{run.run_id}")
    assert causes == ["  3 of 6 windows failed.", "  refused (403): 3"]


@pytest.mark.slow
def test_a_cancelled_run_is_two_lines_without_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Fault 109: Dagster's error came twice, and nothing said that the landed windows stay."""
    with pipeline(tmp_path) as here:
        here.fail(dict.fromkeys(here.keys([2]), Then(latency_ms=60_000)))
        canceller = Thread(target=cancel_once_landed, args=[here, here.keys([1])])
        canceller.start()
        run = pull_and_log(here, here.keys([1, 2]))
        canceller.join()
        written = capfd.readouterr().err.splitlines()

    assert any("DagsterExecutionInterruptedError" in line for line in written)
    lines = [line.split(" ", 1)[1] for line in readable(written, "http://127.0.0.1:3000")]
    assert lines == [
        "raw_applicant_leads: Cancelled. 3 windows of applicant leads landed and stay.",
        f"pull_leads was cancelled: http://127.0.0.1:3000/runs/{run.run_id}",
    ]


def cancel_once_landed(here: Pipeline, keys: set[str]) -> None:
    """Do what Dagster does if a person ends a run in the UI."""
    # The event log waits a second before it stores them. So the run waits for the other windows by
    # now.
    wait_for(lambda: here.shown().keys() >= keys)
    [run] = here.instance.get_runs()
    here.instance.report_run_canceling(run)
    os.kill(os.getpid(), signal.SIGINT)


def pull_and_log(here: Pipeline, keys: set[str]) -> ExecuteInProcessResult:
    """Pull these windows of applicants with Dagster's log on the console."""
    config = {
        "loggers": {"console": {"config": {"log_level": "WARNING"}}},
        "ops": {"raw_applicant_leads": {"config": {"partition_keys": sorted(keys)}}},
    }
    return here.execute(config=config, assets=[AssetKey("raw_applicant_leads")])


def test_an_event_that_cannot_be_stored_is_a_line_without_its_sql() -> None:
    """Fault 109: on a full disk, Dagster prints its statement of SQL."""
    lines = [
        "Exception while storing event batch: (sqlite3.OperationalError) database or disk is full",
        "[SQL: ",
        "CREATE TABLE asset_check_executions (",
        "]",
        "(Background on this error at: https://sqlalche.me/e/21/e3q8)",
        "Falling back to storing multiple single-event storage requests...",
        "2026-11-29 05:40:10 +0000 - dagster.daemon.SensorDaemon - WARNING - It is slow.",
    ]
    assert list(readable(lines, "")) == [
        "  Dagster can't store an event: (sqlite3.OperationalError) database or disk is full",
        "05:40:10 It is slow.",
    ]

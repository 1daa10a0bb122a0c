"""An installation that pulls by a clock of the test's: its leads come by the clock, and nothing is
published.

Belongs here: the assets of raw leads, the schedules and the sensor by that clock. Doesn't: what an
installation has anyway (installation.py), what should come of it, which is the tests'.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

from dagster import (
    BetaWarning,
    Definitions,
    ExecuteInProcessResult,
    RunRequest,
    SkipReason,
    define_asset_job,
    in_process_executor,
)
from dagster._daemon.types import DaemonHeartbeat

from leads_pipeline.domain.contract import APPLICANT, LEAD_KINDS, LeadKind
from leads_pipeline.orchestration.asking import Asking
from leads_pipeline.orchestration.names import PLAIN, PULL_JOB
from leads_pipeline.orchestration.raw_leads import raw_leads_asset
from leads_pipeline.portal import ClientCredentials, LeadsClient, Service, Timing, Tokens
from leads_pipeline.raw.data_folder import DataFolder, first_day
from leads_pipeline.raw.store import Store
from leads_pipeline.raw.windows import WindowRow, window_table
from leads_pipeline.settings import AuthMethod
from leads_pipeline.simulator.app import Config
from leads_pipeline_tests.support.installation import (
    IMPATIENT,
    Clock,
    Installation,
    home,
    installation,
)

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@dataclass
class Pipeline(Installation):
    """An installation whose clock the test sets."""

    bucket: Store | None = None
    client: type[LeadsClient] = LeadsClient

    @property
    def data(self) -> DataFolder:
        return DataFolder.at(self.settings.data_dir, self.bucket, self.clock)

    def start(self, **variables: str) -> None:
        """Start the service anew, with these variables changed."""
        self.environment |= variables
        self.instance.add_daemon_heartbeat(
            DaemonHeartbeat(self.clock().timestamp(), "SENSOR", str(uuid4()), [])
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BetaWarning)  # as definitions.py has it
            assets = [
                raw_leads_asset(kind, self.settings, self.partitions, clock=self.clock)
                for kind in LEAD_KINDS
            ]
        asking = Asking(self.settings, first_day(self.settings), self.clock)
        self.definitions = Definitions(
            assets=assets,
            jobs=[define_asset_job(PULL_JOB, assets, tags=PLAIN.run_tags)],
            schedules=asking.schedules(),
            sensors=[asking.sensor()],
            resources={"data": self.data, "leads": self},
            executor=in_process_executor,
        )

    def connect(self) -> LeadsClient:
        """A client that asks once for each window, as the assets get it."""
        settings = self.settings
        assert settings.base_url
        assert settings.client_id
        assert settings.client_secret
        credentials = ClientCredentials(
            token_url=f"{settings.auth_url}/oauth2/token",
            client_id=settings.client_id,
            secret=settings.client_secret,
            method=AuthMethod.BODY,
            audience=settings.base_url,
        )
        tokens = Tokens(
            credentials, self.data.state.path / "tokens", clock=lambda: self.clock().timestamp()
        )
        service = Service(
            base_url=settings.base_url,
            tokens=tokens,
            policy=IMPATIENT,
            timing=Timing(now=self.clock),
        )
        return self.client(service, max_concurrency=8)

    def asked_for(self) -> dict[str, list[str]]:
        """The partition keys that a tick asks for, by kind."""
        request = self.tick()
        if isinstance(request, SkipReason):
            return {}
        return {
            op.removeprefix("raw_").removesuffix("_leads"): config["config"]["partition_keys"]
            for op, config in request.run_config["ops"].items()
        }

    def run(self, request: RunRequest | SkipReason) -> ExecuteInProcessResult:
        """Run what a tick asked for."""
        assert isinstance(request, RunRequest), request
        return self.execute(
            tags=request.tags, assets=request.asset_selection, config=request.run_config
        )

    def row(self, key: str, kind: LeadKind = APPLICANT) -> WindowRow:
        """What names say of a window."""
        [row] = window_table(self.data.store, kind, [self.window(key)], self.clock())
        return row


def text_of_failure(result: ExecuteInProcessResult) -> str:
    """What a failed run says of its windows of applicants."""
    failure = result.failure_data_for_node("raw_applicant_leads")
    assert failure is not None
    assert failure.user_failure_data is not None
    return str(failure.user_failure_data.description)


@contextmanager
def pipeline(folder: Path) -> Iterator[Pipeline]:
    """Start one in the morning, with the first partition three days before."""
    clock = Clock(datetime(2026, 11, 21, 6, tzinfo=UTC))
    simulated = Config(branches=3, leads_per_day=8, clock=lambda: clock.now)
    variables = {"LEADS_TIMEZONE": "Europe/London", "LEADS_START_DATE": "2026-11-18"}
    with (
        installation(folder, simulated, variables=variables) as there,
        # Its runs have processes of their own, so that they can be dead.
        home(folder / "home of runs") as instance,
        patch("leads_pipeline.orchestration.dead_runs._SECOND_LOOK_SECONDS", 0.001),
    ):
        started = Pipeline(there.simulator, there.environment, instance, clock)
        started.start()
        yield started

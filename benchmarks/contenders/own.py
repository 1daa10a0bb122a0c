"""This pipeline's own code without Dagster: fetch, land, flatten, publish.

Prints the seconds of each phase as JSON, and its CPU seconds, which tell more on a machine with other work.
"""

import json
import os
import time
from datetime import UTC, date, datetime

from leads_pipeline.contract import APPLICANT, LEADS_TOKEN_PATH
from leads_pipeline.credentials import StaticSecret
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.flatten.batches import flatten_days
from leads_pipeline.lake import Lake
from leads_pipeline.portal import ClientCredentials, LeadsClient, Tokens
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Window, days


def connect(settings: Settings, lake: Lake) -> LeadsClient:
    """The client, as the Dagster resource makes it."""
    credentials = ClientCredentials(
        token_url=f"{settings.auth_url}{LEADS_TOKEN_PATH}",
        client_id=settings.client_id or "",
        secret=StaticSecret(os.environ["LEADS_CLIENT_SECRET"]),
        method=settings.auth_method,
        audience=settings.audience,
    )
    base_url = settings.base_url or ""
    tokens = Tokens(credentials, lake.folder / ".state" / "tokens")
    return LeadsClient(base_url, tokens, max_concurrency=settings.max_concurrency)


def pull(settings: Settings, lake: Lake, wanted: list[date]) -> None:
    """Fetch every window and land it."""
    windows = [Window.of(day, scope, settings.zone) for day in wanted for scope in settings.scopes]
    lake.make_folders(APPLICANT, windows)
    client = connect(settings, lake)
    for _, landed in client.fetch_windows(APPLICANT, windows, lambda answer: lake.land(answer, "bench")):
        if isinstance(landed, LeadsPipelineError):
            raise landed


def clocks() -> tuple[float, float]:
    """Seconds, and CPU seconds of all threads."""
    return time.perf_counter(), time.process_time()


def main() -> None:
    """Pull the days that the environment names, and publish them."""
    moments = [clocks()]
    settings = Settings.from_variables(os.environ)
    lake = Lake(settings.data_dir)
    first, last = (date.fromisoformat(os.environ[f"BENCH_{which}_DAY"]) for which in ("FIRST", "LAST"))
    wanted = list(days(first, last))
    pull(settings, lake, wanted)
    moments.append(clocks())
    for _, staged in flatten_days(lake, APPLICANT, wanted, settings.zone):
        if isinstance(staged, LeadsPipelineError):
            raise staged
    moments.append(clocks())
    Warehouse(lake).publish(Grid(settings.scopes, settings.start_date or first, settings.zone), datetime.now(UTC))
    moments.append(clocks())
    names = ("fetch and land", "flatten", "publish")
    phases = {}
    for name, before, after in zip(names, moments, moments[1:], strict=False):
        phases[name], phases[f"{name}, CPU"] = (b - a for a, b in zip(before, after, strict=True))
    print(json.dumps(phases))


if __name__ == "__main__":
    main()

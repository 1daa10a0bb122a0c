"""This pipeline's own code without Dagster: fetch, land and load ahead, publish.

Prints the seconds of each phase as JSON, and its CPU seconds, which tell more on a machine with
other work.
"""

import json
import os
import time
from contextlib import nullcontext
from datetime import UTC, date, datetime
from itertools import pairwise

from leads_pipeline.domain.contract import APPLICANT, LEADS_TOKEN_PATH, Answer
from leads_pipeline.domain.window import Window, days
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.features.loading_ahead.pull import loading_ahead
from leads_pipeline.features.publication_steps import bring_up_to_date
from leads_pipeline.portal import ClientCredentials, LeadsClient, Service, Tokens
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.landing import Landed
from leads_pipeline.settings import Secret, Settings
from leads_pipeline.warehouse.publication import PublicationSettings


def connect(settings: Settings, data: DataFolder) -> LeadsClient:
    """The client, as the Dagster resource makes it."""
    credentials = ClientCredentials(
        token_url=f"{settings.auth_url}{LEADS_TOKEN_PATH}",
        client_id=settings.client_id or "",
        secret=Secret("LEADS_CLIENT_SECRET", os.environ["LEADS_CLIENT_SECRET"]),
        method=settings.auth_method,
        audience=settings.audience,
    )
    base_url = settings.base_url or ""
    tokens = Tokens(credentials, data.folder / ".state" / "tokens")
    service = Service(base_url=base_url, tokens=tokens)
    return LeadsClient(service, max_concurrency=settings.max_concurrency)


def pull(settings: Settings, data: DataFolder, wanted: list[date]) -> None:
    """Fetch every window and land it."""
    windows = [Window.of(day, scope, settings.zone) for day in wanted for scope in settings.scopes]
    client = connect(settings, data)

    def land(answer: Answer) -> Landed:
        at = answer.fetched_at
        body_hash = answer.body_sha256
        return data.raw.land(
            APPLICANT, answer.window, answer.leads, at, body_hash, "bench", is_fresh=True
        )

    is_plain = bool(os.environ.get("BENCH_PLAIN"))
    with nullcontext() if is_plain else loading_ahead(settings, len(windows)):
        for _, landed in client.fetch_windows(APPLICANT, windows, land):
            if isinstance(landed, LeadsPipelineError):
                raise landed


def clocks() -> tuple[float, float]:
    """Seconds, and CPU seconds of all threads."""
    return time.perf_counter(), time.process_time()


def main() -> None:
    """Pull the days that the environment names, and publish them."""
    moments = [clocks()]
    settings = Settings.from_variables(os.environ)
    data = DataFolder.at(settings.data_dir)
    first, last = (
        date.fromisoformat(os.environ[f"BENCH_{which}_DAY"]) for which in ("FIRST", "LAST")
    )
    wanted = list(days(first, last))
    pull(settings, data, wanted)
    moments.append(clocks())
    grid = PublicationSettings(settings.scopes, settings.start_date or first, settings.zone)
    assert bring_up_to_date(data, grid, datetime.now(UTC)).problems == {}
    moments.append(clocks())
    phases = {}
    for name, (before, after) in zip(("fetch and land", "publish"), pairwise(moments), strict=True):
        phases[name], phases[f"{name}, CPU"] = (b - a for a, b in zip(before, after, strict=True))
    print(json.dumps(phases))


if __name__ == "__main__":
    main()

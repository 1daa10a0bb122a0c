"""What pushes through a day cost, and how fresh the file is.

1,200 leads of 60 branches come one by one, into 300,000.

Belongs here: the day's clock, which runs as fast as the work allows. Doesn't: the runs of Dagster
around each publication, which take some seconds of CPU each and write some 0.3 MB.
"""

import os
import resource
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from statistics import median

from benchmarks.publishing import FIRST, FOLDER, WANTED, ZONE, make_history, millions_of
from leads_pipeline.domain.bodies import cut_leads
from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.features.publication_steps import bring_up_to_date
from leads_pipeline.orchestration.publish_sensor import FOLDER_SECONDS, noted_publication
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.names import Place
from leads_pipeline.raw.publications import Publications
from leads_pipeline.simulator.leads import LeadBook
from leads_pipeline.simulator.organisation import Organisation
from leads_pipeline.warehouse.duck import WAREHOUSE_FILE

PUSHES = int(os.environ.get("BENCH_PUSHES", "1200"))
# The figures are those of a day, whatever part of it is tried.
HOURS = float(os.environ.get("BENCH_HOURS", "6"))
BRANCHES = 60


def used() -> tuple[float, float]:
    """What this process has written to disks in GB, and its CPU seconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_oublock * 512 / 1e9, usage.ru_utime + usage.ru_stime


def main() -> None:
    """Print a line per size of the history."""
    print(
        f"{'history':>10} {'pushes':>7} {'publications':>13} {'GB a day':>9} {'% of a core':>12} "
        f"{'wait minutes':>13}"
    )
    for millions in millions_of("0.3,1,3"):
        with tempfile.TemporaryDirectory(dir=FOLDER) as name:
            make_history(Path(name), None, int(millions * 1_000_000))
            print(f"{int(millions * 1_000_000):>10,} {_day(Path(name) / 'data')}")


def _day(folder: Path) -> str:
    begin = now = datetime(FIRST.year, FIRST.month, FIRST.day, 8, tzinfo=UTC) + timedelta(days=1)
    data = DataFolder.at(folder, clock=lambda: now)
    rng = Random(1)  # noqa: S311 - the same each time
    hours = sorted(rng.uniform(0, HOURS) for _ in range(round(PUSHES * HOURS / 24)))
    pushes = [begin + timedelta(hours=each) for each in hours]
    branch = Organisation(7, BRANCHES).branches[0]
    body = LeadBook(7, 2 * len(pushes)).answer(
        "applicant", [branch], begin - timedelta(days=1), begin, begin
    )
    leads = iter(cut_leads(APPLICANT, body).leads)
    waits: list[float] = []
    waiting: list[datetime] = []
    publications = 0
    first_at = now
    before = used()
    while pushes or waiting:
        now += timedelta(seconds=FOLDER_SECONDS)
        while pushes and pushes[0] <= now:
            waiting.append(pushes.pop(0))
            place = Place(APPLICANT, begin.date(), rng.choice(WANTED.scopes).key)
            data.raw.add(place, [next(leads)], waiting[-1])
        next_at = Publications.read(data.state.path).next_at()
        if waiting and (next_at is None or next_at <= now):
            with noted_publication(data, ZONE, is_nightly=False, clock=lambda at=now: at):  # type: ignore[misc]
                bring_up_to_date(data, WANTED, now)
            # The first publication of a day, by the file's time, reads all days.
            os.utime(data.folder / WAREHOUSE_FILE, (now.timestamp(),) * 2)
            waits += [(now - pushed) / timedelta(minutes=1) for pushed in waiting]
            waiting = []
            publications = publications + 1
            if publications == 1:
                first_at = now
                before = used()
    days = (now - first_at) / timedelta(days=1)  # from the first publication to the last
    written, cpu = ((after - earlier) / days for earlier, after in zip(before, used(), strict=True))
    minutes = f"{median(waits):.1f}, at most {max(waits):.0f}"
    return f"{len(waits):>7} {publications:>13} {written:>9.1f} {cpu / 864:>12.1f} {minutes:>13}"


if __name__ == "__main__":
    main()

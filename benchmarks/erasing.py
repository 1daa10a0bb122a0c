"""What an erasure costs as the leads grow: the sweep of raw, and leads.duckdb built anew.

Belongs here: making the leads, and timing the publication that carries the erasure out. Doesn't:
finding the person.
"""

import os
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path

from benchmarks.measuring import resident_bytes
from benchmarks.publishing import FIRST, FOLDER, NOW, ZONE, land, millions_of, publish
from leads_pipeline.domain.contract import APPLICANT, ReceivedLead
from leads_pipeline.domain.window import Scope, Window
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.suppression import Action, Entry
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.names import list_places
from leads_pipeline.warehouse.published import LeadsFile


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds of a publication, by the clock and of CPU, and the most memory of its process."""

    clock: float
    cpu: float
    peak_mb: float


def timed_publication(folder: Path) -> Took:
    """Publish what has landed, or carry out what is on the list."""
    began = time.perf_counter()
    publish(DataFolder.at(folder / "data"))
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Took(
        clock=time.perf_counter() - began,
        cpu=used.ru_utime + used.ru_stime,
        peak_mb=resident_bytes(os.getpid())[1] / 1e6,
    )


def land_leads(folder: Path, leads: int) -> None:
    """Land one day of all branches, and its copies on the days before, up to so many leads.

    Copies have other ids.
    """
    data = DataFolder.at(folder / "data")
    day = FIRST
    landed = land(DataFolder.at(folder / "data"), FIRST)
    windows = [(place.scope, data.raw.read(place).rows) for place in list_places(data.store)]
    while landed < leads:
        day -= timedelta(days=1)
        for scope, rows in windows:
            received = [
                ReceivedLead(f"{row.lead_id}-{day}", row.payload.replace(str(FIRST), str(day)))
                for row in rows
            ]
            window = Window.of(day, Scope.parse(scope), ZONE)
            data.raw.land(APPLICANT, window, received, NOW, "0" * 64, "bench", is_fresh=True)
            landed += len(received)


def erase_one(folder: Path) -> None:
    """Put one published lead on the list."""
    data = DataFolder.at(folder / "data")
    [(lead_id,)] = LeadsFile(data).query("select min(lead_id) from applicant_leads")[1]
    list_of(data).append(
        lambda suppressed, number: Entry(
            number=number,
            at=datetime.now(UTC),
            action=Action.ERASE,
            leads=(suppressed.hashed_lead("applicant", lead_id),),
        )
    )


def main() -> None:
    """Print a line per size: the first publication, and the one that carries out an erasure."""
    print(f"{'leads':>10} {'publication':>12} {'s':>8} {'CPU s':>8} {'peak MB':>8}")
    for millions in millions_of("0.3"):  # 3 million take twenty minutes
        with tempfile.TemporaryDirectory(dir=FOLDER) as name:
            folder = Path(name)
            land_leads(folder, int(millions * 1_000_000))
            for publication in ("first", "erasure"):
                if publication == "erasure":
                    erase_one(folder)
                with ProcessPoolExecutor(1, get_context("spawn")) as process:
                    took = process.submit(timed_publication, folder).result()
                [(leads,)] = LeadsFile(DataFolder.at(folder / "data")).query(
                    "select count(*) from applicant_leads"
                )[1]
                line = f"{took.clock:>8.1f} {took.cpu:>8.1f} {took.peak_mb:>8.0f}"
                print(f"{leads:>10,.0f} {publication:>12} {line}", flush=True)

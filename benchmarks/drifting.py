"""What leads cost that are full of what the contract doesn't know, beside leads of the same size that aren't.

Belongs here: making such leads, and timing a day of them, flattened and published. Doesn't: what is done with them.
Processor seconds, all threads together, as a day is so short; what a day without leads costs is taken off.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from statistics import median
from typing import Any
from zoneinfo import ZoneInfo

from leads_pipeline.contract import APPLICANT, Answer
from leads_pipeline.domain.answer import read_leads
from leads_pipeline.flatten.batches import flatten_day
from leads_pipeline.lake import Lake
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope, Window

ZONE = ZoneInfo("Europe/London")
MEGABYTES = float(os.environ.get("BENCH_MEGABYTES", "15"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = date(2026, 11, 19)
SCOPE = Scope.parse("branch-101")

# What a lead holds beside its person, in pairs: with nothing new, and with as many bytes that are new, or with
# that many times as much of it. They have one shape, but for a text, which nothing has to look into.
PAIRS: dict[str, tuple[dict[str, Any], Callable[[int], dict[str, Any]]]] = {
    "60 images, with a list of 12 objects each": (
        {"listingDetails": {"images": [{"original": "x" * 165} for _ in range(60)]}},
        lambda times: {
            "listingDetails": {"images": [{"original": "x" * 32, "tags": [{"a": n} for n in range(12 * times)]}] * 60}
        },
    ),
    "8,000 small objects in a new list": (
        {"listingDetails": {"images": [{"filename": None}] * 4_800}},
        lambda times: {"new": [{"a": n} for n in range(8_000 * times)]},
    ),
    "8,000 small objects in a new list, beside a text": (
        {"message": "x" * 95_000},
        lambda times: {"new": [{"a": n} for n in range(8_000 * times)]},
    ),
    "8,000 small objects as images": (
        {"listingDetails": {"images": [{"filename": None}] * 8_000}},
        lambda times: {"listingDetails": {"images": [{"thumbnail": 1}] * (8_000 * times)}},
    ),
    "200 new fields, beside a text": (
        {"message": "x" * 2_700},
        lambda times: {f"new{n}": n for n in range(200 * times)},
    ),
}


def land(lake: Lake, content: dict[str, Any], number: int) -> None:
    """Land a day of leads with that content."""
    leads = [
        json.dumps(
            {
                "id": f"lead-{n}",
                "createdAt": "2026-11-19T09:00:00Z",
                "contact": {"email": f"person-{n}@example.org", "phoneNumber": f"07700 9{n:05}"},
            }
            | content
        )
        for n in range(number)
    ]
    body = f'{{"applicants":[{",".join(leads)}]}}'.encode()
    window = Window.of(DAY, SCOPE, ZONE)
    lake.land(
        Answer(APPLICANT, window, read_leads(APPLICANT, body).leads, NOW, "/", "0" * 64, len(body), 1, 0.1), "bench"
    )


def timed(content: dict[str, Any], number: int) -> float:
    """What it takes to flatten and publish a day of so many leads."""
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder) / "data")
        land(lake, content, number)
        began = time.process_time()
        flatten_day(lake, APPLICANT, DAY, ZONE)
        Warehouse(lake).publish(Grid([SCOPE], DAY, ZONE), NOW)
        return time.process_time() - began


def main() -> None:
    """Print a line per pair: medians of what a megabyte takes, and of the ratios of days done in turn.

    `ratio` is with it to nothing new, `twice` the same megabytes in half the leads, with twice as much each, to with it
    once: 1 is linear in the bytes.
    """
    timed({}, 1)  # what is done once a process
    print(
        f"{'leads with':<48} {'kB a lead':>9} {'nothing new ms/MB':>18} {'with it ms/MB':>14} {'ratio':>6} {'twice':>6}"
    )
    for name, (nothing_new, new) in PAIRS.items():
        number = max(2, round(MEGABYTES / _megabytes(nothing_new)))
        days = [(nothing_new, number), (new(1), number), (new(2), number // 2)]
        rounds = []
        for _ in range(ROUNDS):
            a_day = timed({}, 1)
            rounds.append(
                [1000 * (timed(content, leads) - a_day) / (leads * _megabytes(content)) for content, leads in days]
            )
        known, once, _ = (median(figures) for figures in zip(*rounds, strict=True))
        ratio = median(once / known for known, once, _ in rounds)
        twice = median(twice / once for _, once, twice in rounds)
        size = 1000 * _megabytes(new(1))
        print(f"{name:<48} {size:>9.1f} {known:>18.1f} {once:>14.1f} {ratio:>6.2f} {twice:>6.2f}", flush=True)


def _megabytes(content: dict[str, Any]) -> float:
    return len(json.dumps(content)) / 1e6

"""Outcomes: which delivered leads the agency has accepted or rejected in its own system.

They are noted in the ledger. `data/outcomes/<destination>.csv` has them for the tables of analysts.

Belongs here: when the system is asked, and the files. Doesn't: its requests (alto.py), the tables
(features/own_tables).
"""

import csv
import io
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.features.delivery.alto import Alto, LeadOutcome
from leads_pipeline.features.delivery.destinations import Destination, destinations_of
from leads_pipeline.features.delivery.ledger import (
    Ledger,
    lock_name,
    reading_ledger,
    writing_ledger,
)
from leads_pipeline.features.delivery.questions import first_delivery
from leads_pipeline.orchestration.night import Night
from leads_pipeline.portal.tokens import Tokens
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.durable import replace_file, storing
from leads_pipeline.settings import Settings

# The folder of the files, below the data folder.
FOLDER: Final = "outcomes"

# A lead that changes while the system answers is in the next answer, too.
_OVERLAP: Final = timedelta(hours=1)
_LOCK_SECONDS: Final = 60.0


def work_of_night(data: DataFolder, settings: Settings, now: datetime, night: Night) -> None:
    """Ask each destination for outcomes, and delete the files of those that aren't asked any more.

    An error is a warning of the night. After two days it is a finding.
    """
    try:
        asked = [one for one in destinations_of(settings) if one.outcomes]
    except LeadsPipelineError:  # the finding `delivery` names it
        return

    names = {one.name for one in asked}
    night.attempt("Old outcomes couldn't be deleted", lambda: _delete_old(data.folder, names))
    for destination in asked:
        try:
            night.counts[f"outcomes_{destination.name}"] = ask(data, destination, now)
        except LeadsPipelineError as error:
            night.warnings.append(f"{destination.name}: {error}")


def ask(data: DataFolder, destination: Destination, now: datetime) -> int:
    """Ask for what changed since the last success, and write the file. Return how many changed.

    Raises LeadsPipelineError. Then the outcomes are as before.
    """
    name = destination.name
    with reading_ledger(data.folder, name) as ledger:
        has_ids = ledger is not None and ledger.fact("host") == destination.form.host
        interval = _interval(ledger, now) if ledger and has_ids else None
    if destination.outcomes is None or interval is None:
        return 0

    outcomes: list[LeadOutcome] = []
    trouble = None
    credentials = destination.form.credentials
    tokens = Tokens(credentials, data.state.path / "tokens") if credentials else None
    try:
        outcomes = Alto(destination.outcomes, tokens).outcomes(interval)
    except LeadsPipelineError as error:
        trouble = error

    with (
        data.state.lock(lock_name(name), timeout_seconds=_LOCK_SECONDS),
        writing_ledger(data.folder, name) as ledger,
    ):
        changed = sum(ledger.note_outcome(*one) for one in outcomes)
        _note_asked(ledger, now, trouble)
        write_outcomes(data.folder, ledger)
    if trouble is not None:
        raise trouble
    return changed


def _interval(ledger: Ledger, now: datetime) -> dict[str, str] | None:
    """Return the parameters of the interval. None if nothing was delivered yet."""
    first = first_delivery(ledger)
    if first is None:
        return None

    until = ledger.fact("outcomes_until")
    since = datetime.fromisoformat(until) if until else first.at
    return {
        "modified-from": _written(min(since, now) - _OVERLAP),
        "modified-to": _written(now),
        # A local day can begin before the day in UTC.
        "enquiry-from": _written(first.lead_day - timedelta(days=1)),
        "enquiry-to": _written(now),
    }


def _written(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _note_asked(ledger: Ledger, now: datetime, trouble: LeadsPipelineError | None) -> None:
    """Note what came of it. `outcomes_failing` is the moment of the first failure in a row."""
    if trouble is None:
        ledger.set_fact("outcomes_until", now.isoformat())
        ledger.set_fact("outcomes_failing", None)
    elif ledger.fact("outcomes_failing") is None:
        ledger.set_fact("outcomes_failing", now.isoformat())
    ledger.set_fact("outcomes_trouble", str(trouble) if trouble else None)


def write_outcomes(folder: Path, ledger: Ledger) -> None:
    """Write the destination's file anew, or delete it if there is no outcome. Raises StorageError.

    Call it before the ledger commits: a killed process must not leave a lead in the file alone.
    """
    path = folder / FOLDER / f"{ledger.name}.csv"
    rows = ledger.outcomes()
    if not rows:
        with storing(path):
            path.unlink(missing_ok=True)
        return

    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["lead_id", "outcome", "at"])
    for _, lead_id, outcome, at in rows:
        writer.writerow([lead_id, outcome, datetime.fromtimestamp(at, UTC).isoformat()])
    replace_file(path, text.getvalue().encode())


def _delete_old(folder: Path, names: Collection[str]) -> None:
    """Delete files that no ledger of these destinations stands for: no erasure would reach them."""
    for path in (folder / FOLDER).glob("*.csv"):
        with reading_ledger(folder, path.stem) as ledger:
            has_outcomes = ledger is not None and bool(ledger.outcomes())
        if path.stem not in names or not has_outcomes:
            with storing(path):
                path.unlink(missing_ok=True)

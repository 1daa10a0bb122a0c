"""What a request did: it is carried out, looked at again, and written down for whoever answers the person.

Belongs here: carrying out, what is left, the receipt's words. Doesn't: entries of the list (requests.py), how a
publication is started and what is printed (cli/privacy.py).
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from leads_pipeline.domain.person import LeadRow, Reason
from leads_pipeline.errors import QuestionError, StorageError
from leads_pipeline.privacy.finding import Found, FoundLead, left_in_delta
from leads_pipeline.privacy.requests import NOUNS, due_on
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.durable import replace_file
from leads_pipeline.storage.suppression import Action, Entry

# The list's folder in a backup.
PRIVACY: Final = "privacy"

_PORTAL: Final = "The portal: it has data of its own. Send the person there."
_COPIES: Final = "The CRM, exports, notebooks, spreadsheets, e-mails and copies that analysts made."
_OPENED: Final = "Programs that still have the old leads.duckdb open: close them."

_OUT_OF_REACH: Final = {
    Action.ERASE: (
        _PORTAL,
        "The CRM: erase the person there as well.",
        "Copies of leads.duckdb and exports: delete them, or make them again from the new files.",
        "Notebooks, spreadsheets and e-mails: ask everybody who may have some to delete the person's rows.",
        "Backups from before this moment: they hold the person until you delete them. A restored backup is cleaned by "
        "its first run.",
        _OPENED,
        "The disk: it keeps the bytes of deleted files until it writes over them.",
    ),
    Action.OBJECT: (
        "Marketing lists outside of leads.duckdb, for example in a CRM.",
        "Copies that analysts made.",
        "Marketing that reads the tables of leads itself: pipeline.objected names the people to leave out.",
    ),
    Action.CORRECT: (_PORTAL, _COPIES),
    Action.RESTRICT: (_PORTAL, _COPIES, "Backups.", _OPENED),
}

_PUBLISHED: Final = "Carried out and published."
_COMPLETE: Final = dict.fromkeys(_OUT_OF_REACH, _PUBLISHED) | {
    Action.ERASE: "All files were searched again: what had to go is gone."
}
_NOT_COMPLETE: Final = "NOT complete: something is left. See to it, then run `leads-pipeline privacy apply`."


def carry_out(data: DataFolder, publish: Callable[[], str | None]) -> list[str]:
    """Sweep the folder and publish. Return what went wrong. `publish` does both, and returns what went wrong."""
    number = data.gate.number
    trouble = publish()
    if trouble is None and data.state.swept_to() < number:
        trouble = "A file couldn't be gone through. The log of the run names it."
    if trouble:
        return [trouble]
    # With a bucket, the Delta tables may be another machine's.
    return [
        f"{table} in the bucket holds an erased person. Run `leads-pipeline privacy apply` on the machine that has "
        "LEADS_TABLES=delta."
        for table in (left_in_delta(data) if data.bucket else ())
    ]


def left_of(data: DataFolder, erasure: Entry, found: Found, cleared: Collection[str]) -> list[FoundLead]:
    """The leads of a search that should be gone by now, and those whose message should be empty.

    A lead of the person that was created after the erasure is a new enquiry, and stays.
    """
    erased = data.gate.entries.read().erased
    return [
        lead
        for lead in found.leads
        if erased.is_known(lead.kind, lead.lead_id)
        or (lead.is_theirs and any(_created_before(erasure, lead)))
        or (lead.lead_id in cleared and Reason.MENTION in lead.why)
    ]


def _created_before(erasure: Entry, lead: FoundLead) -> list[bool]:
    rows = (LeadRow(row.kind, row.lead_id, row.day, row.payload) for row in lead.rows)
    return [erasure.until is not None and row.created_at < erasure.until for row in rows]


def write_receipt(data: DataFolder, entry: Entry, done: str, *, is_complete: bool) -> tuple[str, Path]:
    """Write the receipt beside the list. It names nobody. Return its text and where it is."""
    received = entry.received or entry.at.date()
    out_of_reach = "\n".join(f"- {line}" for line in _OUT_OF_REACH[entry.action])
    text = (
        f"{NOUNS[entry.action].capitalize()} {entry.number}{f', case {entry.case}' if entry.case else ''}\n"
        f"Received on {received}. Answer the person by {due_on(received)}.\n"
        f"On the suppression list since {entry.at:%Y-%m-%d %H:%M} UTC.\n\n{done}\n"
        f"{_COMPLETE[entry.action] if is_complete else _NOT_COMPLETE}\n\n"
        f"The pipeline can't reach these places. Please see to them:\n{out_of_reach}\n"
    )
    path = receipts(data) / f"{entry.number}.txt"
    replace_file(path, text.encode())
    return text, path


def receipts(data: DataFolder) -> Path:
    """The folder of the receipts."""
    return data.gate.entries.folder / "receipts"


def put_list_back(data: DataFolder, source: Path, now: datetime) -> str:
    """Put the suppression list back from a copy of its file or folder, or from a backup. Return what it may lack.

    Raises QuestionError if there is no copy, or the list can be used as it is.
    """
    patterns = ("list/*", f"{PRIVACY}/list/*", f"*/{PRIVACY}/list/*")
    found = [path for pattern in patterns for path in source.glob(pattern)] if source.is_dir() else [source]
    if not (copies := [path for path in found if path.name.isdecimal()]):
        raise QuestionError(
            f"{source} holds no suppression list. Name a file of `list/`, the list's folder, or a backup."
        )
    with suppress(StorageError):
        if data.gate.entries.read():
            raise QuestionError("The suppression list can be used as it is. Nothing was changed.")
    lost = data.gate.entries.put_back(copies, now)
    entries = data.gate.entries.read().entries
    requests = [entry for entry in entries if entry.received]
    said = f"The suppression list was put back. It has {len(entries) - len(lost)} entries."
    if requests:
        last = requests[-1]
        said += (
            f" The newest request is {last.number}{f', case {last.case}' if last.case else ''}, of {last.at:%Y-%m-%d}."
        )
    if not lost:
        return f"{said} No entry is missing."
    first_lines = [
        path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
        for number in lost
        if (path := receipts(data) / f"{number}.txt").exists()
    ]
    cases = "".join(f"\n- {line}" for line in first_lines)
    known = f"These have receipts:{cases}" if cases else "No receipt says which requests they were."
    return (
        f"{said} It lacks the entries {lost[0]} to {lost[-1]}. {known}\n"
        "Look in your own register for requests since then, and repeat each of them."
    )

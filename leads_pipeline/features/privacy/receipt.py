"""The receipt of a request, and putting a lost suppression list back.

Belongs here: words. Doesn't: entries of the list (requests.py), what is printed beside them
(command.py).
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from leads_pipeline.errors import QuestionError, StorageError
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.requests import NOUNS, due_on
from leads_pipeline.features.privacy.suppression import Action, Entry
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.durable import replace_file
from leads_pipeline.raw.gatekeeper import LIST
from leads_pipeline.raw.people import IsMeant, holders

_PORTAL: Final = "The portal: it has data of its own. Send the person there."
_COPIES: Final = "The CRM, exports, notebooks, spreadsheets, e-mails and copies that analysts made."
_OPENED: Final = "Programs that still have the old leads.duckdb open: close them."

_OUT_OF_REACH: Final = {
    Action.ERASE: (
        _PORTAL,
        "The CRM: erase the person there as well.",
        "Your own files (LEADS_MARTS_DIR, answers.csv): take the person out. leads.duckdb shows "
        "what they say.",
        "Copies of leads.duckdb and exports: delete them, or make them again from the new files.",
        "Notebooks, spreadsheets and e-mails: ask everybody who may have some to delete the "
        "person's rows.",
        "Backups from before this moment: they hold the person until you delete them. A restored "
        "backup is cleaned by its first run, except for quarantine/: `leads-pipeline privacy "
        "apply` names files there that hold the person.",
        _OPENED,
        "The disk: it keeps the bytes of deleted files until it writes over them.",
    ),
    Action.OBJECT: (
        "Marketing lists outside of leads.duckdb, for example in a CRM.",
        "Copies that analysts made.",
        "Marketing that reads the tables of leads itself: pipeline.objected names the people to "
        "leave out.",
    ),
    Action.CORRECT: (_PORTAL, _COPIES),
    Action.ACCESS: (_PORTAL, _COPIES, "Backups. Files in quarantine/ that couldn't be read."),
    Action.RESTRICT: (_PORTAL, _COPIES, "Backups.", _OPENED),
}
_OTHER_MACHINES: Final = (
    "Other machines on the same bucket: their files and Delta tables follow with their next "
    "publication. Their exports don't. The log of their runs of `publish` says to whom they "
    "delivered leads of the person."
)

# Requests with a receipt.
RECEIPTED: Final = frozenset(_OUT_OF_REACH)

_COMPLETE: Final = dict.fromkeys(_OUT_OF_REACH, "Carried out and published.") | {
    Action.ACCESS: "Send the answer. Then note the day: `leads-pipeline privacy export --answered "
    "DAY --case CASE`.",
    Action.ERASE: "All files were searched again. Nothing that had to be erased is left.",
}
_NOT_COMPLETE: Final = dict.fromkeys(
    _OUT_OF_REACH,
    "NOT complete: something is left. Remove its cause, then run `leads-pipeline privacy apply`.",
) | {
    Action.ACCESS: "NOT complete: a file couldn't be read. Remove its cause, then export again "
    "with the same --case."
}


def write_receipt(
    data: DataFolder, entry: Entry, done: str, *, is_complete: bool
) -> tuple[str, Path]:
    """Write the receipt beside the list. It names nobody. Return its text and where it is.

    It says when the entry's leads were delivered to whom (UK GDPR, article 19). After an erasure
    that isn't kept elsewhere.
    """
    received = entry.received or entry.at.date()
    case = f", case {entry.case}" if entry.case else ""

    places = _delivered(data, [entry])
    places += [
        f"Exports in {path}: delete them, then run `leads-pipeline export` again."
        for path in data.state.exports()
    ]
    places += _OUT_OF_REACH[entry.action]

    if data.bucket:
        places.append(_OTHER_MACHINES)

    listed = "".join(f"- {line}\n" for line in places)

    text = (
        f"{NOUNS[entry.action].capitalize()} {entry.number}{case}\n"
        f"Received on {received}. Answer the person by {due_on(received)}.\n"
        f"In the log since {entry.at:%Y-%m-%d %H:%M} UTC.\n\n"
        f"{done}\n{(_COMPLETE if is_complete else _NOT_COMPLETE)[entry.action]}\n\n"
        "The pipeline can't reach these places. Please handle them yourself:\n"
        f"{listed}"
    )
    path = receipt_path(data, entry.number)
    replace_file(path, text.encode())
    return text, path


def recipients(data: DataFolder, is_meant: IsMeant) -> dict[str, list[str]]:
    """Return the hosts that leads were sent to, and the days (ISO dates). Raises StorageError."""
    days: dict[str, list[str]] = {}
    for holder in holders(data):
        for host, of_host in holder.recipients(is_meant).items():
            days[host] = sorted({*days.get(host, []), *of_host})
    return days


def forget_deliveries(data: DataFolder, erasures: Sequence[Entry]) -> list[str]:
    """Forget where erased leads were sent. Return what couldn't be forgotten."""
    is_meant = _of_entries(data, erasures)
    return [trouble for holder in holders(data) for trouble in holder.forget(is_meant)]


def forget_deliveries_of_erased(data: DataFolder) -> list[str]:
    """Forget deliveries of leads whose erasure is done. Say to whom and when they were.

    An interrupted command, a restored backup or an erasure on another machine leaves them.
    """
    suppressed = list_of(data).read()
    # The receipt of one that isn't done yet reads the ledger first.
    erasures = [
        entry
        for entry in suppressed.active
        if entry.action is Action.ERASE and entry.number in suppressed.done
    ]

    if not erasures:
        return []

    delivered = _delivered(data, erasures)
    return forget_deliveries(data, erasures) + delivered


def note_confirmations(data: DataFolder) -> list[str]:
    """Add to the receipts of erasures who has confirmed them. Return what was added."""
    suppressed = list_of(data).read()
    added = []
    for entry in suppressed.active:
        if entry.action is not Action.ERASE or entry.number not in suppressed.done:
            continue
        is_meant = _of_entries(data, [entry])
        for holder in holders(data):
            with suppress(StorageError):  # a delivery may be under way: the next night adds it
                lines = holder.confirmations(is_meant)
                add_to_receipt(data, entry, lines)
                holder.forget_confirmed(is_meant)
                added += [f"Erasure {entry.number}: {line}" for line in lines]
    return added


def add_to_receipt(data: DataFolder, entry: Entry, lines: Sequence[str]) -> None:
    """Add lines to a receipt. Another machine may have it.

    It isn't written anew, because ledgers that have forgotten the person name nobody any more.
    """
    path = receipt_path(data, entry.number)
    if not path.exists():
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    new = [f"- {line}\n" for line in lines if line not in text]
    if new:
        replace_file(path, (text + "".join(new)).encode())


def _delivered(data: DataFolder, entries: Sequence[Entry]) -> list[str]:
    """Say to whom and when leads were delivered.

    A receipt is written even if the ledger can't be read.
    """
    is_erasure = all(entry.action is Action.ERASE for entry in entries)
    try:
        hosts = recipients(data, _of_entries(data, entries))
        untold = {host for holder in holders(data) for host in holder.untold()}
    except StorageError as error:
        return [f"Your own system, if leads are delivered there. {error}"]

    lines = []
    for host, days in hosts.items():
        do = "Tell those who run it."
        if is_erasure and host not in untold:
            do = "It is told of the erasure. This receipt says so when it has confirmed it."
        lines.append(f"{host}: leads of the person were delivered there on {', '.join(days)}. {do}")
    return lines


def _of_entries(data: DataFolder, entries: Sequence[Entry]) -> IsMeant:
    """Whether an entry knows a lead by its id."""
    suppressed = list_of(data).read()
    leads = set[str]()
    for entry in entries:
        leads.update(entry.leads)
    return lambda lead: suppressed.hashed_lead(*lead) in leads


def receipt_path(data: DataFolder, number: int) -> Path:
    """Return where the receipt of an entry is."""
    return receipts(data) / f"{number}.txt"


def receipts(data: DataFolder) -> Path:
    """The folder of the receipts."""
    return list_of(data).folder / "receipts"


def put_list_back(data: DataFolder, source: Path, now: datetime) -> str:
    """Put the suppression list back from a copy or a backup. Return what it may lack.

    `source` is a copy of the list's file or folder, or a backup. Raises QuestionError if there is
    no copy, or the list can be used as it is.
    """
    copies = _copies_in(source)
    if not copies:
        raise QuestionError(
            f"{source} holds no suppression list. Name a file of `list/`, the list's folder, or a "
            "backup."
        )
    with suppress(StorageError):
        if list_of(data).read():
            raise QuestionError("The suppression list can be used as it is. Nothing was changed.")

    lost = list_of(data).put_back(copies, now)
    if not lost:
        return "The suppression list was put back. No entry is missing."

    cases = "".join(f"\n- {line}" for line in _first_lines(data, lost))
    known = f"These have receipts:{cases}" if cases else "No receipt says which requests they were."
    return (
        f"The suppression list was put back. It lacks the entries {lost[0]} to {lost[-1]}. "
        f"{known}\nLook in your own register for requests since then, and repeat each of them."
    )


def _copies_in(source: Path) -> list[Path]:
    """Return the versions of a list that a file, the list's folder or a backup holds."""
    found = [source]
    if source.is_dir():
        found = [
            *source.glob("list/*"),
            *source.glob(f"{LIST}/list/*"),
            *source.glob(f"*/{LIST}/list/*"),
        ]
    return [path for path in found if path.name.isdecimal()]


def _first_lines(data: DataFolder, numbers: Iterable[int]) -> list[str]:
    """Return the first lines of the receipts that these entries have."""
    lines = list[str]()
    for number in numbers:
        path = receipt_path(data, number)
        if path.exists():
            lines.append(path.read_text(encoding="utf-8", errors="replace").partition("\n")[0])
    return lines

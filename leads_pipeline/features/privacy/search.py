"""Every lead of a person, in each place that holds leads.

The places: raw files, rows that are set aside, files in quarantine, and the published rows of leads
that raw has lost. Logs, events, marts and the report hold no personal data, so they are not
searched.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

import pyarrow as pa

from leads_pipeline.domain.contract import LEAD_KINDS, LeadKind, lead_in_words, lead_reference
from leads_pipeline.errors import QuestionError
from leads_pipeline.features.privacy.gatekeeper import gate_of, list_of
from leads_pipeline.features.privacy.identity import (
    THEIRS,
    LeadKey,
    LeadRow,
    Person,
    Reason,
    Version,
    judge,
    names_of,
    owner_of,
    read_version,
)
from leads_pipeline.features.privacy.redact import without_message
from leads_pipeline.features.privacy.suppression import Action, Entry, Meant, Suppressed
from leads_pipeline.features.privacy.suppression.corrections import corrected_texts
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.names import QUARANTINE, RAW, RESTRICTED, Place, list_places
from leads_pipeline.raw.rows import CORRECTION, arrow_table, moment_of, parquet_of
from leads_pipeline.raw.store import FolderStore, Store
from leads_pipeline.warehouse.duck import WAREHOUSE_FILE, quoted
from leads_pipeline.warehouse.editions import Editions
from leads_pipeline.warehouse.published import attached

# The places of a lead's exact texts, by window.
PLACES_OF_RAW: Final = (RAW, RESTRICTED)

# Damaged files of the inventory hold no person.
_INVENTORY: Final = f"{QUARANTINE}/{RAW}/inventory/"

# After so many files, the progress is shown.
_TELL_EVERY: Final = 100


class Row(NamedTuple):
    """A version of a lead and where it lies. `path` is relative to the data folder.

    The root of `place` is raw, restricted, quarantine or leads.duckdb. `payload` is the exact text
    that was received, or the row of leads.duckdb as JSON.
    """

    place: Place
    path: str
    lead_id: str
    payload: str
    received_at: datetime
    source: str

    @property
    def key(self) -> LeadKey:
        """The lead that it belongs to."""
        return self.place.kind.name, self.lead_id


@dataclass(frozen=True, slots=True)
class FoundLead:
    """A lead with all its versions, and all reasons to show it."""

    kind: str
    lead_id: str
    why: frozenset[Reason]
    rows: Sequence[Row]

    @property
    def key(self) -> LeadKey:
        """The kind and the id."""
        return self.kind, self.lead_id

    @property
    def is_theirs(self) -> bool:
        """Whether it is the person's. Otherwise somebody has to look at it."""
        return not THEIRS.isdisjoint(self.why)

    @property
    def is_lost(self) -> bool:
        """Whether leads.duckdb alone has its newest version, as that raw file is lost."""
        return any(row.place.root == WAREHOUSE_FILE for row in self.rows)

    @property
    def places(self) -> dict[str, int]:
        """How many of its versions lie in each place."""
        return Counter(row.place.root for row in self.rows)


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search.

    `names` are the person's. `unread` are files that can't be read, relative to the data folder,
    and folders of raw files from before these were copied into a bucket.
    """

    leads: Sequence[FoundLead] = ()
    names: frozenset[str] = frozenset()
    unread: Sequence[str] = ()
    files: int = 0

    @property
    def theirs(self) -> list[FoundLead]:
        """The person's leads."""
        return [lead for lead in self.leads if lead.is_theirs]

    @property
    def to_look_at(self) -> list[FoundLead]:
        """Leads that may be the person's, or speak of them."""
        return [lead for lead in self.leads if not lead.is_theirs]

    @property
    def keys(self) -> set[LeadKey]:
        """The kinds and ids of all of them."""
        return {lead.key for lead in self.leads}

    @property
    def in_raw(self) -> list[FoundLead]:
        """The leads that a request can set aside or correct: raw has their newest version."""
        return [lead for lead in self.theirs if not lead.is_lost]

    @property
    def quarantined(self) -> list[str]:
        """Files in quarantine/ that hold the person or can't be read."""
        paths = {*self.unread, *(row.path for lead in self.leads for row in lead.rows)}
        return sorted(path for path in paths if path.startswith(f"{QUARANTINE}/"))


def find(
    data: DataFolder,
    person: Person,
    *,
    is_shared: bool = False,
    tell: Callable[[int], None] = lambda _: None,
) -> Found:
    """Search all places, then once more for every version of the leads that were found.

    `tell` hears how many files were read. Raises QuestionError if many people share a given address
    or number, unless `is_shared`, and if a lead that is somebody else's isn't among those that were
    found.
    """
    look = _Look(data, tell)
    seen = look.leads(lambda row: _is_shown_by(person, row))
    files = look.files
    rows = look.versions(seen)
    if unknown := person.not_leads - rows.keys():
        raise QuestionError(not_found(unknown))

    versions: dict[LeadKey, list[Version]] = {}
    for key, of_lead in rows.items():
        versions[key] = [read_version(row.payload) for row in of_lead]
    judged = judge(person, versions, is_shared=is_shared)

    leads = [FoundLead(*key, reasons, rows[key]) for key, reasons in sorted(judged.items())]
    names = owner_of(person, versions).contact.names
    return Found(leads, names, sorted(look.unread), files)


def _is_shown_by(person: Person, row: Row) -> bool:
    """Whether a version was given by its lead's id, or shows anything of the person.

    Few texts are decoded for that.
    """
    if row.key in person.lead_ids:
        return True
    return person.may_be_in(row.payload) and person.is_shown_by(read_version(row.payload))


def not_found(leads: Iterable[LeadKey]) -> str:
    """Say which given ids belong to no lead that was found.

    A slip would leave a lead out, or leave one in.
    """
    return " ".join(
        f"No lead {lead_reference(*key)} was found: check the id." for key in sorted(leads)
    )


def names_of_theirs(person: Person, found: Found) -> frozenset[str]:
    """Return the keys of names in all versions of their leads, except leads given by their ids."""
    names = set[str]()
    for lead in found.theirs:
        if lead.key not in person.lead_ids:
            names |= names_of(read_version(row.payload).contact for row in lead.rows)
    return frozenset(names)


def is_mentioned_beside_message(person: Person, lead: FoundLead) -> bool:
    """Whether a version of the lead mentions the person in another field than its message."""
    texts = [read_version(without_message(row.payload)).other_texts for row in lead.rows]
    return any(map(person.is_mentioned_in, texts))


def left_of(data: DataFolder, erasures: Sequence[Entry]) -> dict[int, list[str]]:
    """Search all places for leads that these erasures mean.

    Return what is left, by the number of the erasure. Raw files were swept before. Since then the
    list knows each lead there by its id, so they are searched by ids. To read each text again would
    take as long as the sweep. The other places are searched by contact too. Then all versions of a
    lead are judged together, as the sweep does. A file that can't be read may hold anybody, so it
    is left of each. Erasures with nothing left are missing.
    """
    if not erasures:
        return {}

    suppressed = list_of(data).read()
    look = _Look(data)
    leads = look.versions(look.leads(_may_be_left(suppressed, erasures)))

    left: dict[int, list[str]] = {}
    for entry in erasures:
        texts = _still_held(suppressed, entry, leads) | _unsearched(look.unread)
        if texts:
            left[entry.number] = sorted(texts)
    return left


def _may_be_left(suppressed: Suppressed, erasures: Sequence[Entry]) -> Callable[[Row], bool]:
    """Return a test of whether a version may be of these erasures.

    It goes by the lead's id, and outside of raw files by the contact.
    """
    meant = Meant(suppressed, erasures)
    ids = {*meant.known}
    for entry in erasures:
        ids.update(entry.cleared)

    def may_be_left(row: Row) -> bool:
        if suppressed.hashed_lead(*row.key) in ids:
            return True
        return row.place.root not in PLACES_OF_RAW and meant.shown_in(row.payload)

    return may_be_left


def _still_held(
    suppressed: Suppressed, entry: Entry, leads: Mapping[LeadKey, Sequence[Row]]
) -> set[str]:
    """Return which files hold a lead of the erasure, or a message that it empties, in sentences."""
    held = set[str]()
    meant = Meant(suppressed, [entry])

    for key, rows in leads.items():
        is_meant = bool(meant.leads(_lead_rows(key, rows)))
        is_cleared = suppressed.hashed_lead(*key) in entry.cleared
        for row in rows:
            has_message = is_cleared and without_message(row.payload) != row.payload
            if is_meant:
                held.add(f"{row.path} holds the {lead_in_words(*key)}.")
            elif has_message:
                held.add(f"{row.path} holds the message of the {lead_in_words(*key)}.")

    return held


def _unsearched(unread: Iterable[str]) -> set[str]:
    return {
        f"{path} can't be searched, so it may hold the person. {_to_do(path)}, then run "
        "`leads-pipeline privacy apply`."
        for path in unread
    }


def unchanged_by(data: DataFolder, entries: Sequence[Entry]) -> dict[int, list[str]]:
    """Return the leads that raw had lost at these requests, and that are unchanged since.

    They are neither set aside nor corrected. They are in words, by the number of the request.
    Requests without such leads are missing.
    """
    lost = set[str]()
    for entry in entries:
        lost.update(entry.lost)
    if not lost:
        return {}

    suppressed = list_of(data).read()
    leads = _Look(data).versions_if(lambda key: suppressed.hashed_lead(*key) in lost)

    unchanged: dict[int, list[str]] = {}
    for key, rows in leads.items():
        hashed = suppressed.hashed_lead(*key)
        for entry in entries:
            if hashed in entry.lost and not _is_carried_out(entry, rows):
                unchanged.setdefault(entry.number, []).append(
                    f"{lead_in_words(*key)} stays in leads.duckdb as it is: its raw file was lost. "
                    "Pull its day again if the portal still has it, and repeat the request. "
                    "Otherwise erase the lead."
                )
    return unchanged


def _is_carried_out(entry: Entry, rows: Sequence[Row]) -> bool:
    """Whether a lead that raw had lost was landed again, and set aside or corrected later."""
    if entry.action is Action.RESTRICT:
        return all(row.place.root == RESTRICTED for row in rows)
    return any(row.source == CORRECTION for row in rows)


def _to_do(path: str) -> str:
    """Return what to do with a file or folder that can't be searched.

    It may have the only copy of other leads.
    """
    return (
        "Once `leads-pipeline verify` is green, delete it" if path.startswith("/") else "Delete it"
    )


def learn_lost(data: DataFolder) -> None:
    """Have the list know leads of people on it by their ids, if only leads.duckdb has them.

    A sweep can't meet them.
    """
    suppressed = list_of(data).read()
    means = [meant for meant in (suppressed.erased, suppressed.objecting) if meant]
    if not means:
        return

    def may_be_meant(row: Row) -> bool:
        return row.place.root == WAREHOUSE_FILE and any(
            meant.shown_in(row.payload) for meant in means
        )

    look = _Look(data)
    for key, rows in look.versions(look.leads(may_be_meant)).items():
        gate_of(data).learn(_lead_rows(key, rows))


def _lead_rows(key: LeadKey, rows: Sequence[Row]) -> list[LeadRow]:
    return [LeadRow(*key, row.place.day, row.payload) for row in rows]


class _Look:
    """Passes over all places. `files` counts those that were read."""

    def __init__(self, data: DataFolder, tell: Callable[[int], None] = lambda _: None) -> None:
        self._data = data
        self._tell = tell
        self.files = 0
        self.unread = set[str]()

    def rows(self, is_wanted: Callable[[Row], bool]) -> Iterator[Row]:
        """The rows that are wanted, as they are read."""
        in_raw: dict[LeadKind, list[pa.Table]] = {kind: [] for kind in LEAD_KINDS}
        for root in PLACES_OF_RAW:
            for place in list_places(self._data.store, root):
                yield from filter(is_wanted, self._of_window(place, in_raw[place.kind]))
        yield from filter(is_wanted, self._quarantined())
        yield from filter(is_wanted, self._of_tables(in_raw))

    def leads(self, is_wanted: Callable[[Row], bool]) -> set[LeadKey]:
        """The leads of the rows that are wanted."""
        return {row.key for row in self.rows(is_wanted)}

    def versions(self, leads: Set[LeadKey]) -> dict[LeadKey, list[Row]]:
        """All rows of these leads."""
        return self.versions_if(lambda key: key in leads) if leads else {}

    def versions_if(self, is_wanted: Callable[[LeadKey], bool]) -> dict[LeadKey, list[Row]]:
        """All rows of the leads that are wanted."""
        found: dict[LeadKey, list[Row]] = {}
        for row in self.rows(lambda row: is_wanted(row.key)):
            found.setdefault(row.key, []).append(row)
        return found

    def _of_window(self, place: Place, in_raw: list[pa.Table]) -> Iterator[Row]:
        """Yield the rows of a window, corrections as whole texts.

        Their ids and numbers are added to `in_raw`.
        """
        contents = self._data.raw.read(place)
        everything = [row for opened in contents.opened.values() for row in opened.rows]
        texts = corrected_texts(everything)

        for file, opened in contents.opened.items():
            self._count()
            # Arrow keeps millions of ids in a tenth of what they take in a dict. A correction is no
            # version of its own.
            versions = [row for row in opened.rows if row.source != CORRECTION]
            in_raw.append(arrow_table(versions).select(["lead_id", "number"]))
            for row in opened.rows:
                text = texts.get(row, row.payload)
                yield Row(place, file.key, row.lead_id, text, moment_of(row.number), row.source)

    def _quarantined(self) -> Iterator[Row]:
        """The rows of files in quarantine, of earlier versions too."""
        for file in self._data.quarantine.files():
            if file.key.startswith(_INVENTORY):
                continue
            content = self._data.quarantine.get(file.key) if file.place else None
            try:
                table = parquet_of(content or b"").read(use_threads=False)
                ids, payloads = (table[name].to_pylist() for name in ("lead_id", "payload"))
            except (pa.ArrowException, ValueError, OSError, KeyError):
                self.unread.add(file.key)
                continue
            self._count()
            if file.place is not None:
                place = file.place._replace(root=QUARANTINE)
                moment = file.set_aside_at or datetime.now(UTC)
                for lead_id, payload in zip(map(str, ids), map(str, payloads), strict=True):
                    yield Row(place, file.key, lead_id, payload, moment, "")

        self.unread.update(self._data.quarantine.answers())
        if self._data.bucket:
            self.unread.update(self._copied(FolderStore(self._data.folder)))

    def _copied(self, here: Store) -> Iterator[str]:
        """Yield the folders that were copied into the bucket, if they have files that it lacks.

        No sweep reaches them.
        """
        for root in PLACES_OF_RAW:
            for kind in LEAD_KINDS:
                prefix = f"{root}/{kind.table}/"
                keys_here = {*here.list(prefix)}
                # The bucket is asked only if there is something to compare.
                if keys_here and keys_here - {*self._data.store.list(prefix)}:
                    yield str(self._data.folder / root)
                    break

    def _of_tables(self, in_raw: Mapping[LeadKind, Sequence[pa.Table]]) -> Iterator[Row]:
        """Yield the published rows of leads that raw has lost, as JSON.

        `in_raw` has ids and numbers of raw.
        """
        link = self._data.folder / WAREHOUSE_FILE
        # A restored backup has no link.
        published = link if link.exists() else Editions(self._data.folder).current()

        if published is None:
            return

        no_ids = arrow_table([]).select(["lead_id", "number"])
        with attached(self._data.folder, published) as db:
            for kind, tables in in_raw.items():
                db.register("in_raw", pa.concat_tables([no_ids, *tables]))
                cursor = db.execute(
                    "select lead_id, to_json(lost)::varchar, window_day, scope, fetched_at, source "  # noqa: S608 - our own names
                    f"from {quoted(kind.table)} as lost anti join in_raw "
                    "on in_raw.lead_id = lost.lead_id and in_raw.number >= lost.sequence"
                )
                while rows := cursor.fetchmany(10_000):
                    for lead_id, text, day, scope, received_at, source in rows:
                        place = Place(kind, day, scope, WAREHOUSE_FILE)
                        yield Row(place, WAREHOUSE_FILE, lead_id, text, received_at, source)

    def _count(self) -> None:
        self.files += 1
        if self.files % _TELL_EVERY == 0:
            self._tell(self.files)

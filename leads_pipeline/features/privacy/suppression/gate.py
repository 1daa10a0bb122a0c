"""The gate: what the suppression list keeps out of raw files, asked wherever rows are merged.

Belongs here: asking the list, rows that are set aside in `restricted/`, cutting what lands in an
anonymous day. Doesn't: the list itself (files.py), landing (raw/landing.py), going through a whole
folder (sweeping.py).
"""

import shutil
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from datetime import UTC, date, datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from leads_pipeline.domain.contract import LeadKind
from leads_pipeline.features.privacy.identity import LeadKey, LeadRow
from leads_pipeline.features.privacy.redact import cut_payload, removed_address, without_message
from leads_pipeline.features.privacy.suppression.corrections import corrected_texts
from leads_pipeline.features.privacy.suppression.entries import Action, Entry, Meant, Suppressed
from leads_pipeline.features.privacy.suppression.files import SuppressionList
from leads_pipeline.raw.gatekeeper import LIST
from leads_pipeline.raw.landing import Raw
from leads_pipeline.raw.names import RAW, RESTRICTED, Place, list_places
from leads_pipeline.raw.rows import CORRECTION, Row, merged
from leads_pipeline.raw.store import FolderStore, Store


class Gate:
    """Decides which leads raw windows may hold. It is the Gatekeeper of raw/gatekeeper.py.

    `entries` is the list itself, `raw` are the windows behind the gate, those in `restricted/` too.
    `key_of_day` gives the key under which the people of an anonymous day become random ids, None
    for other days. Methods raise StorageError if the list or the store can't be used.
    """

    def __init__(
        self,
        store: Store,
        entries: SuppressionList,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        key_of_day: Callable[[date], bytes | None] = lambda _: None,
        note_landed: Callable[[], None] = lambda: None,
    ) -> None:
        self.entries = entries
        self.raw = Raw(store, self, clock, note_landed)
        self._store = store
        self._key_of_day = key_of_day

    @property
    def folder(self) -> Path:
        """The folder of the list's files, key and receipts."""
        return self.entries.folder

    @property
    def newest_entry(self) -> int:
        """The number of the newest entry by which rows may have to go."""
        return self.entries.read().newest_entry

    def knows(self, kind: LeadKind, lead_ids: Collection[str]) -> bool:
        """Whether the list changes one of these leads, by its id.

        It keeps the lead out, empties its message, or says that it is corrected.
        """
        suppressed = self.entries.read()
        changed = suppressed.changed
        if not changed:
            return False
        return any(suppressed.hashed_lead(kind.name, lead_id) in changed for lead_id in lead_ids)

    def admit(self, place: Place, rows: list[Row]) -> list[Row]:
        """Return the rows that may lie in the window, with payloads as they may lie there.

        Nobody is kept out of `restricted/`. The list knows refused leads by their ids from then on.
        Rows of restricted leads are set aside, durably, when this returns. Corrections of a lead
        that was corrected in another window are added.
        """
        if place.root == RESTRICTED:
            return rows
        if self.entries.read():
            restricted, rows = self._split(place, self._with_corrections(place, rows))
            if restricted:
                self._set_aside(place._replace(root=RESTRICTED), restricted)

        key = self._key_of_day(place.day) if rows else None
        return rows if key is None else _anonymous(place.kind, rows, key)

    def kept_out(self, kind: LeadKind, lead_ids: Collection[str]) -> set[str]:
        """Return which of these leads were erased or are restricted, by their ids."""
        return self.entries.read().out.known_among(kind, lead_ids)

    def objecting(self, kind: LeadKind, lead_ids: Collection[str]) -> set[str]:
        """Return the ids of the leads of people who object to direct marketing."""
        return self.entries.read().objecting.known_among(kind, lead_ids)

    def objecting_people(self) -> set[str]:
        """Return the people whom entries of earlier versions name as the column `person` does."""
        return self.entries.read().objecting.persons

    def exchange_with_bucket(self) -> None:
        """Exchange entries with the bucket's list, if there is a bucket."""
        self.entries.exchange()

    def take_over(self, root: Path) -> None:
        """Have the list know all entries of the copy in that folder, and keep its receipts.

        Raises StorageError if the two lists contradict.
        """
        copy = root / LIST
        SuppressionList(
            copy, root / "guard"
        ).read()  # makes today's form of an earlier release's list
        SuppressionList(self.entries.folder, self.entries.guard, FolderStore(root)).exchange()
        receipts = copy / "receipts"
        if receipts.is_dir():
            shutil.copytree(receipts, self.folder / "receipts", dirs_exist_ok=True)

    def _split(self, place: Place, rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
        """Return the rows of restricted leads and the others, with the messages that may stay.

        Erased leads are in neither. The list learns the ids of the leads that it means.
        """
        texts = corrected_texts(rows)
        # An answer mostly repeats what its window has.
        shown = {
            LeadRow(place.kind.name, row.lead_id, place.day, texts.get(row, row.payload))
            for row in rows
        }
        leads = self._learn_leads_on_list(shown)

        restricted = list[Row]()
        others = list[Row]()

        for row in rows:
            key = (place.kind.name, row.lead_id)
            if key in leads.erased:
                continue
            if key in leads.cleared:
                row = row._replace(payload=without_message(row.payload))
            if key in leads.restricted:
                restricted.append(row)
            else:
                others.append(row)

        return restricted, others

    def _learn_leads_on_list(self, shown: Collection[LeadRow]) -> "_LeadsOnList":
        """Have the list know by their ids the leads that it means. Return which they are.

        An id that was learned may mean another of them, so the list is asked until it learns none.
        """
        while True:
            suppressed = self.entries.read()
            erased = suppressed.erased.leads(shown)
            restricted = suppressed.restricted.leads(shown)
            objecting = suppressed.objecting.leads(shown)
            has_learned = [
                self._learn(suppressed.erased, erased),
                self._learn(suppressed.restricted, restricted),
                # It lands. Marts leave it out by its id, also when the portal corrects its address.
                self._learn(suppressed.objecting, objecting),
            ]
            if not any(has_learned):
                cleared = suppressed.cleared.leads(shown)
                return _LeadsOnList(erased.keys(), restricted.keys(), cleared.keys())

    def learn(self, rows: Sequence[LeadRow]) -> None:
        """Have the list know leads of people who were erased or object by their ids.

        Give all versions of a lead.
        """
        suppressed = self.entries.read()
        for meant in (suppressed.erased, suppressed.objecting):
            self._learn(meant, meant.leads(rows))

    def _learn(self, meant: Meant, leads: dict[LeadKey, int]) -> bool:
        """Have the list know the ids of these leads. Return whether any was unknown."""
        unknown = meant.unknown(leads)
        for of, hashed in unknown.items():
            self.entries.append(partial(_noted, Action.LEARNED, of, tuple(sorted(hashed))))
        return bool(unknown)

    def _with_corrections(self, window: Place, rows: list[Row]) -> list[Row]:
        """Its correction goes along with a lead that the portal moves to another branch or day.

        Midnight's lead is in two days. The nearest days are searched first. If raw has lost it, the
        list says so.
        """
        suppressed = self.entries.read()
        lacking = {
            row.lead_id
            for row in rows
            if suppressed.corrected.is_known(window.kind.name, row.lead_id)
        }
        lacking -= {row.lead_id for row in rows if row.source == CORRECTION}
        if not lacking:
            return rows

        corrections = self._corrections_near(window, lacking)
        lost = lacking - _ids_of(corrections)
        # Then there is no address to correct.
        is_anonymous = self._key_of_day(window.day) is not None
        if lost and not is_anonymous:
            hashed = {suppressed.hashed_lead(window.kind.name, lead_id) for lead_id in lost}
            self.entries.append(partial(_noted, Action.LACKING, 0, tuple(sorted(hashed))))
        return [*rows, *corrections]

    def _corrections_near(self, window: Place, lacking: Set[str]) -> list[Row]:
        """Return the corrections of these leads, of the nearest days that have some.

        Midnight's lead is in the windows of two days, and each may have corrections. So the days
        before and after are always read.
        """

        def distance(place: Place) -> int:
            return abs(place.day - window.day).days

        everywhere = [*list_places(self._store, RAW), *list_places(self._store, RESTRICTED)]
        places = [place for place in everywhere if place.kind == window.kind]

        corrections = list[Row]()
        for days_away, near in groupby(sorted(places, key=distance), distance):
            if days_away > 1 and lacking <= _ids_of(corrections):
                break
            for place in near:
                for row in self.raw.read(place).rows:
                    if row.source == CORRECTION and row.lead_id in lacking:
                        corrections.append(row)
        return corrections

    # --- rows that are set aside ------------------------------------------------------------------

    def sweep_restricted(self) -> int:
        """Land rows whose restriction has ended, delete those of erased leads, and empty messages.

        Return how many windows changed.
        """
        windows = 0
        for place in list_places(self._store, RESTRICTED):
            rows = merged(self.raw.read(place).rows)
            restricted, lifted = self._split(place, rows)
            if restricted == rows:
                continue
            if lifted:
                self.raw.merge(place._replace(root=RAW), lifted)
            self.raw.rewrite(place, partial(self._without, place, {row.lead_id for row in lifted}))
            windows += 1

        return windows

    def _without(self, place: Place, landed: set[str], rows: list[Row]) -> list[Row]:
        """Return the rows that stay: of restricted leads, and of leads that haven't landed yet."""
        restricted, lifted = self._split(place, rows)
        waiting = [row for row in lifted if row.lead_id not in landed]
        return [*restricted, *waiting]

    def _set_aside(self, place: Place, rows: Sequence[Row]) -> None:
        """Add rows to those of the window that are set aside.

        Files of an older list don't count: a sweep that hasn't seen the newest entry may be about
        to delete them.
        """
        newest_entry = self.newest_entry
        set_aside = list[Row]()
        for opened in self.raw.read(place).opened.values():
            if opened.footer.newest_entry >= newest_entry:
                set_aside += opened.rows
        if merged([*set_aside, *rows]) != merged(set_aside):
            self.raw.merge(place, rows)


class _LeadsOnList(NamedTuple):
    """Leads that entries of the list mean."""

    erased: Set[LeadKey]
    restricted: Set[LeadKey]
    cleared: Set[LeadKey]


def _anonymous(kind: LeadKind, rows: Sequence[Row], key: bytes) -> list[Row]:
    """Return the rows without the people, who become random ids under the key of their day.

    The corrected address or number tells who a person is, and is cut out then.
    """
    texts = {row.lead_id: text for row, text in corrected_texts(rows).items()}
    anonymous = list[Row]()
    for row in rows:
        if row.source != CORRECTION:
            address = removed_address(texts.get(row.lead_id, row.payload), key)
            anonymous.append(row._replace(payload=cut_payload(kind, row.payload, address)))
    return anonymous


def _ids_of(rows: Iterable[Row]) -> set[str]:
    return {row.lead_id for row in rows}


def _noted(action: Action, of: int, leads: tuple[str, ...], _: Suppressed, number: int) -> Entry:
    return Entry(number=number, at=datetime.now(UTC), action=action, of=of, leads=leads)

"""The gate: what the suppression list keeps out of raw files, asked wherever rows are merged into one.

Belongs here: asking the list, rows that are set aside in `restricted/`, cutting what lands in an anonymous day.
Doesn't: the list itself (files.py), landing (storage/landing.py), going through a whole folder (privacy/).
"""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from functools import partial
from itertools import groupby

from leads_pipeline.domain.contract import LeadKind
from leads_pipeline.domain.cutting import cut_payload, removed_address, without_message
from leads_pipeline.domain.person import LeadKey, LeadRow
from leads_pipeline.storage.landing import Raw
from leads_pipeline.storage.raw import RAW, RESTRICTED, Place, list_places
from leads_pipeline.storage.rows import CORRECTION, Row, corrected_texts, merged
from leads_pipeline.storage.store import Store
from leads_pipeline.storage.suppression.entries import Action, Entry, Meant, Suppressed
from leads_pipeline.storage.suppression.files import SuppressionList


class Gate:
    """Decides which leads raw windows may hold. It implements the protocol SuppressionList of storage/landing.py.

    `entries` is the list itself, `restricted` are the rows that are set aside. `key_of_day` gives the key under which
    the people of an anonymous day become random ids, None for other days. Methods raise StorageError if the list or the
    store can't be used.
    """

    def __init__(
        self,
        store: Store,
        entries: SuppressionList,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        key_of_day: Callable[[date], bytes | None] = lambda _: None,
    ) -> None:
        self.entries = entries
        self.restricted = Raw(store, _Everybody(self), clock)
        self._store = store
        self._key_of_day = key_of_day

    @property
    def number(self) -> int:
        """The number of the newest entry by which rows may have to go."""
        return self.entries.read().number

    def admit(self, kind: LeadKind, day: date, scope: str, rows: list[Row]) -> list[Row]:
        """Return the rows that may lie in raw, with payloads as they may lie there.

        The list knows the leads that are refused by their ids from then on. Rows of restricted leads are set aside,
        durably, when this returns. Corrections of a lead that was corrected in another window are added.
        """
        if self.entries.read():
            _, restricted, admitted = self._judge(kind, day, self._with_corrections(kind, day, rows))
            if restricted:
                self._set_aside(Place(kind, day, scope, RESTRICTED), restricted)
            rows = admitted
        if rows and (key := self._key_of_day(day)):
            # The corrected address or number tells who the person is, and is cut out then.
            texts = {row.lead_id: text for row, text in corrected_texts(rows).items()}
            return [
                row._replace(
                    payload=cut_payload(kind, row.payload, removed_address(texts.get(row.lead_id, row.payload), key))
                )
                for row in rows
                if row.source != CORRECTION
            ]
        return rows

    def _judge(self, kind: LeadKind, day: date, rows: Sequence[Row]) -> tuple[list[Row], list[Row], list[Row]]:
        """Return the rows of erased leads, of restricted leads, and the others with the messages that may stay."""
        texts = corrected_texts(rows)
        # An answer mostly repeats what its window has.
        shown = {LeadRow(kind.name, row.lead_id, day, texts.get(row, row.payload)) for row in rows}
        while True:
            suppressed = self.entries.read()
            erased, restricted = suppressed.erased.leads(shown), suppressed.restricted.leads(shown)
            has_learned = [
                self._learn(suppressed.erased, erased),
                self._learn(suppressed.restricted, restricted),
                # It lands. Marts leave it out by its id, also when the portal corrects its address.
                self._learn(suppressed.objecting, suppressed.objecting.leads(shown)),
            ]
            if not any(has_learned):
                break
        cleared = suppressed.cleared.leads(shown)
        out, aside, admitted = list[Row](), list[Row](), list[Row]()
        for row in rows:
            key = (kind.name, row.lead_id)
            if key in erased:
                out.append(row)
            elif key in restricted:
                aside.append(row)
            else:
                admitted.append(row._replace(payload=without_message(row.payload)) if key in cleared else row)
        return out, aside, admitted

    def _learn(self, meant: Meant, leads: dict[LeadKey, int]) -> bool:
        """Have the list know the ids of these leads. Return whether any was unknown."""
        unknown = meant.unknown(leads)
        for of, hashed in unknown.items():
            self.entries.append(partial(_learned, of, tuple(sorted(hashed))))
        return bool(unknown)

    def _with_corrections(self, kind: LeadKind, day: date, rows: list[Row]) -> list[Row]:
        """Its correction goes along with a lead that the portal moves to another branch or day.

        Midnight's lead is in two days. The nearest days are searched first. If raw has lost it, the list says so.
        """

        def distance(place: Place) -> int:
            return abs(place.day - day).days

        suppressed = self.entries.read()
        corrected = suppressed.corrected
        if not corrected:
            return rows
        lacking = {row.lead_id for row in rows if corrected.is_known(kind.name, row.lead_id)}
        lacking -= {row.lead_id for row in rows if row.source == CORRECTION}
        if not lacking:
            return rows
        places = [place for root in (RAW, RESTRICTED) for place in list_places(self._store, root) if place.kind == kind]
        corrections = list[Row]()
        for days_away, near in groupby(sorted(places, key=distance), distance):
            if days_away > 1 and lacking <= {row.lead_id for row in corrections}:
                break
            for place in near:
                found = (row for row in self.restricted.read(place).rows if row.source == CORRECTION)
                corrections += [row for row in found if row.lead_id in lacking]
        lost = lacking - {row.lead_id for row in corrections}
        if lost and not self._key_of_day(day):  # an anonymous day has no address to correct
            hashed = {suppressed.hashed_lead(kind.name, lead_id) for lead_id in lost}
            self.entries.append(partial(_lacking, tuple(sorted(hashed))))
        return [*rows, *corrections]

    # --- rows that are set aside --------------------------------------------------------------------------------------

    def sweep_restricted(self, raw: Raw) -> dict[Place, set[str]]:
        """Land rows again whose restriction has ended, and delete those of erased leads.

        Return the ids of both by the window in raw. `raw` lands them through this gate.
        """
        gone: dict[Place, set[str]] = {}
        for place in list_places(self._store, RESTRICTED):
            rows = merged(self.restricted.read(place).rows)
            erased, _, lifted = self._judge(place.kind, place.day, rows)
            if not erased and not lifted:
                continue
            window = place._replace(root=RAW)
            if lifted:
                raw.merge(window, lifted)
            gone[window] = {row.lead_id for row in (*erased, *lifted)}
            self.restricted.rewrite(place, partial(self._without, place, gone[window]))
        return gone

    def _without(self, place: Place, lead_ids: set[str], rows: list[Row]) -> list[Row]:
        """Return the rows without those of the leads, unless somebody has restricted them again meanwhile."""
        _, restricted, _ = self._judge(place.kind, place.day, rows)
        again = {row.lead_id for row in restricted}
        return [row for row in rows if row.lead_id not in lead_ids or row.lead_id in again]

    def _set_aside(self, place: Place, rows: Sequence[Row]) -> None:
        """Add rows to those of the window that are set aside.

        Files of an older list don't count: a sweep that hasn't seen the newest entry may be about to delete them.
        """
        number = self.number
        opened = (one for one in self.restricted.read(place).opened.values() if one.footer.list_number >= number)
        known = [row for one in opened for row in one.rows]
        if merged([*known, *rows]) != merged(known):
            self.restricted.merge(place, rows)


class _Everybody:
    """Nobody is kept out of `restricted/`."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    @property
    def number(self) -> int:
        return self._gate.number

    def admit(self, kind: LeadKind, day: date, scope: str, rows: list[Row]) -> list[Row]:  # noqa: ARG002
        return rows


def _learned(of: int, hashed: tuple[str, ...], _: Suppressed, number: int) -> Entry:
    return Entry(number=number, at=datetime.now(UTC), action=Action.LEARNED, of=of, leads=hashed)


def _lacking(hashed: tuple[str, ...], _: Suppressed, number: int) -> Entry:
    return Entry(number=number, at=datetime.now(UTC), action=Action.LACKING, leads=hashed)

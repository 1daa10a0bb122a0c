"""Landing in raw windows, and reading them.

Landing reads a folder's files, merges them with what arrived, creates one file, and then deletes
the merged ones.
Nobody holds a lock: two landings at once leave two files, readers take the union, and the next
landing merges them.

Belongs here: reading, landing, rewriting, failures, damage. Doesn't: names (names.py), rows and
their order (rows.py), the verbs of a store (store.py), who is on the suppression list.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

import msgspec

from leads_pipeline.domain.contract import LeadKind, ReceivedLead
from leads_pipeline.domain.due import Failure
from leads_pipeline.domain.window import Window
from leads_pipeline.raw.gatekeeper import Gatekeeper
from leads_pipeline.raw.names import (
    FAILED,
    RESTRICTED,
    FileState,
    Folder,
    Place,
    RawFile,
    list_folders,
    most_whole,
    place_of,
    read_failure,
    set_aside,
    state_of,
)
from leads_pipeline.raw.rows import (
    PUSH,
    Footer,
    Opened,
    Row,
    hash_of,
    merged,
    microseconds,
    newest_payloads,
    open_raw,
    received_rows,
    to_parquet,
    without_returned,
)
from leads_pipeline.raw.store import Store

# More files in a folder are merged by the next landing.
MOST_FILES: Final = 8


@dataclass(frozen=True, slots=True)
class Fetch:
    """A whole answer. `at` is the moment of its request in microseconds since 1970."""

    at: int
    state: FileState
    body_hash: str
    run_id: str


@dataclass
class Contents:
    """A window's files and what is in them."""

    opened: dict[RawFile, Opened] = field(default_factory=dict)
    has_failed: bool = False

    @property
    def folder(self) -> Folder:
        """The files' names."""
        return Folder([*self.opened], self.has_failed)

    @cached_property
    def rows(self) -> list[Row]:
        """The rows of all files that count, not merged.

        A killed landing may have left an older file. Of a lead that was gone and came back, the row
        in the newest file alone counts.
        """
        newest = self.folder.newest
        in_newest = self.opened[newest].rows if newest else []
        rows = [*in_newest]

        for file, opened in self.opened.items():
            if file != newest:
                # Gone from the answer that made this file, and back in the newest.
                rows += without_returned(opened.rows, in_newest, gone=opened.footer.gone)

        return rows

    @property
    def footer(self) -> Footer:
        """The footer of the file of the newest fetch."""
        newest = self.folder.newest
        return self.opened[newest].footer if newest else Footer()

    def is_older_than(self, fetch: Fetch) -> bool:
        """Whether no file has a newer fetch than this."""
        newest = self.folder.newest
        return newest is None or newest.fetch <= fetch.at

    @property
    def is_anonymous(self) -> bool:
        """Whether every file is anonymous."""
        return all(opened.footer.is_anonymous for opened in self.opened.values())


@dataclass(frozen=True, slots=True)
class Landed:
    """The result of a landing, in different ids.

    `leads` counts those that the window has afterwards. `new` and `changed` count those that
    weren't there, or not with this text. `refused` counts those that arrived and that the
    suppression list keeps out.
    """

    leads: int
    new: int = 0
    changed: int = 0
    refused: int = 0


class Raw:
    """The raw leads of a store. Many processes and threads may use it at once.

    `note_landed` is called before and after each file that is created. Methods raise StorageError
    if the store can't be used. Landed leads stay then.
    """

    def __init__(
        self,
        store: Store,
        gate: Gatekeeper,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        note_landed: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._gate = gate
        self._clock = clock
        self._note_landed = note_landed

    def read(self, place: Place) -> Contents:
        """Return the window's files, each compared with its hash.

        A damaged file is moved to quarantine, and the window is noted as failed, so that it is
        asked for again. A file whose footer has an older list's number than today's may hold people
        that the list keeps out.
        """
        while True:
            folder = self._folder(place)
            contents = Contents(has_failed=folder.has_failed)
            for file in folder.files:
                content = self._store.get(file.key)
                if content is None:
                    break  # merged or renamed meanwhile: list again
                opened = _opened(content, file)
                if opened is None:
                    self.set_aside(place, file.key)
                    contents.has_failed = True
                else:
                    contents.opened[file] = opened
            else:
                return contents

    # --- landing ----------------------------------------------------------------------------------

    def land(
        self,
        kind: LeadKind,
        window: Window,
        leads: Iterable[ReceivedLead],
        asked_at: datetime,
        body_hash: str,
        run_id: str,
        *,
        is_fresh: bool = False,
    ) -> Landed:
        """Merge a whole answer into its window. It is durable when this returns.

        `asked_at` is the moment of the request. A lead that the answer no longer holds stays.
        `is_fresh`: a listing showed that the window's folder is empty or missing, so that nothing
        is listed or read.
        """
        place = place_of(kind, window)
        fetch = Fetch(microseconds(asked_at), state_of(window, asked_at), body_hash, run_id)
        newest_entry = self._gate.newest_entry
        before = Contents() if is_fresh else self.read(place)
        if landed := self._confirm_by_name(place, before, fetch, newest_entry):
            return landed
        received = received_rows(leads, asked_at, before.rows, self._clock())
        return self._merge(place, before, received, fetch, newest_entry)

    def merge(self, place: Place, rows: Sequence[Row]) -> Landed:
        """Merge rows that have their numbers. They are durable when this returns."""
        newest_entry = self._gate.newest_entry
        return self._merge(place, self.read(place), rows, None, newest_entry)

    def add(
        self,
        place: Place,
        leads: Iterable[ReceivedLead],
        received_at: datetime,
        source: str = PUSH,
        run_id: str = "",
    ) -> Landed:
        """Add pushed leads, or those of an incomplete answer. They are durable when this returns.

        They make a file of their own, until the folder has more than MOST_FILES. A window doesn't
        count as landed by them.
        """
        newest_entry = self._gate.newest_entry
        before = self.read(place)
        received = received_rows(leads, received_at, before.rows, self._clock(), source)
        rows_before = set(before.rows)
        admitted = self._gate.admit(place, [*before.rows, *received])

        if len(before.opened) > MOST_FILES or not rows_before <= set(admitted):
            return self._merge(place, before, received, None, newest_entry)

        now = merged(admitted)
        if arrived := [row for row in now if row not in rows_before]:
            self._create(place, arrived, Footer(run_id, newest_entry=newest_entry), 0, "rows")
            self._follow_list(place, newest_entry)

        return _counts(before.rows, received, now)

    def _confirm_by_name(
        self, place: Place, before: Contents, fetch: Fetch, newest_entry: int
    ) -> Landed | None:
        """Give the window's only file a newer name, if the answer has the same bytes as before."""
        newest = before.folder.newest
        if newest is None or len(before.opened) > 1 or fetch.at <= newest.fetch:
            return None

        footer = before.footer
        if footer.body_hash != fetch.body_hash or footer.newest_entry != newest_entry:
            return None

        renamed = newest._replace(fetch=fetch.at, state=most_whole(newest.state, fetch.state))
        if not self._store.rename(newest.key, renamed.named(place.key)):
            return None

        self._forget_failure(place, before)
        self._follow_list(place, newest_entry)
        return Landed(newest.leads)

    def _merge(
        self,
        place: Place,
        before: Contents,
        received: Sequence[Row],
        fetch: Fetch | None,
        newest_entry: int,
    ) -> Landed:
        """Put one file in the place of those before it."""
        rows_before = before.rows
        is_newest_fetch = fetch is not None and before.is_older_than(fetch)
        if is_newest_fetch:
            rows_before = without_returned(rows_before, received, gone=before.footer.gone)

        everything = [*rows_before, *received]
        admitted = self._gate.admit(place, everything)
        rows = merged(admitted)

        footer = replace(before.footer, body_hash="", newest_entry=newest_entry, is_anonymous=False)
        if fetch is not None and is_newest_fetch:
            footer = replace(footer, run_id=fetch.run_id, gone=_gone_from(received, rows, fetch))
            # The same answer again changes nothing only if nothing newer came by another way. And
            # if a person was taken out, the hash would confirm a guess of the whole answer.
            came_later = any(row.number > fetch.at for row in rows_before)
            if admitted == everything and not came_later:
                footer = replace(footer, body_hash=fetch.body_hash)

        self._replace(place, before, rows, footer, fetch)
        if fetch is not None:
            self._forget_failure(place, before)

        self._follow_list(place, newest_entry)
        return _counts(rows_before, received, rows)

    def _replace(
        self,
        place: Place,
        before: Contents,
        rows: list[Row],
        footer: Footer,
        fetch: Fetch | None = None,
    ) -> None:
        """Create one file, then delete those that it stands for."""
        newest = before.folder.newest
        at = max(newest.fetch if newest else 0, fetch.at if fetch else 0)
        state = most_whole(before.folder.state, fetch.state if fetch else "rows")
        made = self._create(place, rows, footer, at, state) if rows or at else ""
        self._store.delete([file.key for file in before.opened if file.key != made])

    def _create(
        self, place: Place, rows: Sequence[Row], footer: Footer, at: int, state: FileState
    ) -> str:
        ids = {row.lead_id for row in rows}
        content = to_parquet(rows, replace(footer, gone=footer.gone & ids))
        file = RawFile("", at, state, len(ids), hash_of(content))
        key = file.named(place.key)
        self._note_landed()  # also before, because a killed process would wake nobody afterwards
        self._store.create(key, content)
        self._note_landed()
        return key

    def _follow_list(self, place: Place, newest_entry: int) -> None:
        """Filter again if the list has grown since its newest entry was read."""
        if self._gate.newest_entry != newest_entry:
            self.rewrite(place)

    # --- rewriting --------------------------------------------------------------------------------

    def rewrite(
        self,
        place: Place,
        change: Callable[[list[Row]], list[Row]] = lambda rows: rows,
        *,
        is_anonymous: bool = False,
    ) -> bool:
        """Take rows out of a window or change them, and filter it by today's list.

        Return whether anything changed. `change` is called again until it changes nothing.
        `is_anonymous`: from then on nobody is named in the rows. Moment and state stay.
        """
        has_changed = False
        while True:
            newest_entry = self._gate.newest_entry
            before = self.read(place)
            rows = merged(before.rows)
            now = merged(change(self._gate.admit(place, rows)))
            is_anonymous_now = is_anonymous or before.is_anonymous
            if now != rows or is_anonymous_now != before.is_anonymous:
                footer = replace(
                    before.footer,
                    body_hash="",
                    newest_entry=newest_entry,
                    is_anonymous=is_anonymous_now,
                )
                self._replace(place, before, now, footer)
                has_changed = True
            elif self._gate.newest_entry == newest_entry:
                return has_changed

    # --- failures and damage ----------------------------------------------------------------------

    def fail(self, place: Place, reason: str, message: str = "", *, is_permanent: bool) -> Failure:
        """Note that a run didn't land the window. Neither text holds personal data."""
        now = self._clock()
        before = self._failure(place, now)
        failure = msgspec.structs.replace(
            before,
            reason=reason,
            verdict="refused" if is_permanent else "temporary",
            attempts=before.attempts + 1,
            failed_at=now,
            message=message,
        )
        self._store.create(place.key + FAILED, msgspec.json.encode(failure))

        return failure

    def set_aside(self, place: Place, key: str) -> None:
        """Move a damaged file to quarantine.

        The failure is noted first, so that a kill between them loses neither.
        """
        now = self._clock()
        failure = msgspec.structs.replace(self._failure(place, now), damaged_at=now)
        self._store.create(place.key + FAILED, msgspec.json.encode(failure))
        again = "Its window is pulled again while the portal has it. Its leads stay published."
        is_restricted = place.root == RESTRICTED
        set_aside(self._store, key, now, "Put it back from a backup." if is_restricted else again)

    def _failure(self, place: Place, now: datetime) -> Failure:
        """Return the window's failure, or one that begins now with a damaged file."""
        return read_failure(self._store, place.key, self._folder(place)) or Failure(
            reason="damaged file",
            verdict="temporary",
            attempts=0,
            first_failed_at=now,
            failed_at=now,
        )

    def _forget_failure(self, place: Place, before: Contents) -> None:
        if before.has_failed:
            self._store.delete([place.key + FAILED])

    def _folder(self, place: Place) -> Folder:
        return list_folders(self._store, place.key, self._clock()).get(place.key, Folder())


def _opened(content: bytes, file: RawFile) -> Opened | None:
    """Open a file. None if its bytes aren't those that were written, or no raw file's."""
    return open_raw(content) if hash_of(content) == file.hash else None


def _gone_from(received: Iterable[Row], rows: Iterable[Row], fetch: Fetch) -> frozenset[str]:
    """Return the leads of the window that aren't in the answer any more.

    Leads that landed after the request can't be in its answer.
    """
    answered = {row.lead_id for row in received}
    landed_later = {row.lead_id for row in rows if row.number > fetch.at}
    return frozenset(row.lead_id for row in rows) - answered - landed_later


def _counts(before: Sequence[Row], received: Iterable[Row], now: Sequence[Row]) -> Landed:
    """Compare merged rows with those before. `before` may have rows that aren't merged."""
    payloads = newest_payloads(now)
    payloads_before = newest_payloads(merged(before))
    ids = {row.lead_id for row in received}
    landed = ids & payloads.keys()
    again = landed & payloads_before.keys()

    return Landed(
        leads=len(payloads),
        new=len(landed) - len(again),
        changed=sum(payloads[id_] != payloads_before[id_] for id_ in again),
        refused=len(ids) - len(landed),
    )

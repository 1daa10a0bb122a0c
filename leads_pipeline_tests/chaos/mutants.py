"""`make mutants`: break one promise of the pipeline at a time, and see that a test notices.

Belongs here: the promises, a way or several to break each, and the tests that should notice. Doesn't: the tests. A
mutant that survives means that a test is missing; one whose text is no longer there once has to be written anew.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from leads_pipeline_tests.turn import SEED_VARIABLE, Turn

ROOT: Final = Path(__file__).parents[2]

# Twice as long as the longest of these tests takes on a busy machine: what takes longer hangs, and that is noticed.
TIMEOUT_SECONDS: Final = 240

_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) \S*?(\w+\.py(?:::\S+)?)", re.MULTILINE)

# What pytest exits with (pytest.ExitCode): all passed, some failed, there are none. Anything else is trouble.
_PASSED, _TESTS_FAILED, _NO_TESTS = 0, 1, 5


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken promise: in `file`, each `old` text, which stands there once, becomes the `new` one after it.

    `tests` is what pytest is given, a file below leads_pipeline_tests and perhaps -k; without -k the chaos tests are
    left out.
    """

    name: str
    file: str
    changes: tuple[tuple[str, str], ...]
    tests: tuple[str, ...]

    def trouble(self, root: Path) -> str | None:
        """Why what it breaks can't be broken below `root`, or no test would notice; None where both can be."""
        try:
            self._broken(root)
        except ValueError as error:
            return str(error)
        file, *only = self.tests
        source = (root / "leads_pipeline_tests" / file).read_text(encoding="utf-8")
        words = {word for expression in only for word in re.findall(r"\w+", expression)} - {"and", "or", "not"}
        return next((f"{file} has no {word}" for word in sorted(words) if word not in source), None)

    def apply(self, root: Path) -> None:
        """Break the copy below `root`. Raises ValueError as `trouble` says."""
        (root / "leads_pipeline" / self.file).write_text(self._broken(root), encoding="utf-8")

    def _broken(self, root: Path) -> str:
        source = (root / "leads_pipeline" / self.file).read_text(encoding="utf-8")
        for old, new in self.changes:
            if (count := source.count(old)) != 1:
                raise ValueError(f"its text stands {count} times in {self.file}: {old.strip().splitlines()[0]}")
            source = source.replace(old, new)
        return source


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant: which test noticed it first, or what is wrong."""

    seconds: float
    caught_by: str | None = None
    trouble: str | None = None


def _m(name: str, file: str, old: str, new: str, tests: str, only: str = "") -> Mutant:
    return Mutant(name, file, ((old, new),), (tests, "-k", only) if only else (tests,))


PROMISES: Final[dict[str, tuple[Mutant, ...]]] = {
    "success is reported after a durable landing": (
        _m(
            "skip the fsync of a file",
            "durable.py",
            "        sync(source)\n        source.replace(path)\n",
            "        source.replace(path)\n",
            "chaos/test_storage.py",
            "syncs_the_file",
        ),
        _m(
            "skip the fsync of a folder",
            "durable.py",
            "        source.replace(path)\n        sync(path.parent)\n",
            "        source.replace(path)\n",
            "chaos/test_storage.py",
            "syncs_the_file",
        ),
        _m(
            "skip the fsync of a new folder's entry",
            "durable.py",
            "        folder.mkdir(PRIVATE_FOLDER_MODE, exist_ok=True)\n        sync(folder.parent)\n",
            "        folder.mkdir(PRIVATE_FOLDER_MODE, exist_ok=True)\n",
            "chaos/test_storage.py",
            "syncs_the_file",
        ),
        _m(
            "write a file in its place instead of beside it",
            "durable.py",
            "            publish_file(draft, path)\n",
            "            path.write_bytes(content)\n            draft.unlink()\n",
            "test_lake.py",
        ),
        _m(
            "report a landing that failed as success",
            "assets/raw.py",
            "        except LeadsPipelineError as error:\n            return error\n",
            "        except LeadsPipelineError:\n"
            "            return outcome, Landing(0, 0, 0, 0, 0, False, True, False, lake.folder)\n",
            "test_assets.py",
            "cannot_be_landed",
        ),
        _m(
            "end a run with failed windows quietly",
            "assets/raw.py",
            "        if failures:\n            raise Failure(\n                _summary",
            "        if False:\n            raise Failure(\n                _summary",
            "test_assets.py",
            "failing_windows",
        ),
        _m(
            "exit with 0 although a window failed",
            "runs.py",
            "        return not self.failed and not self.broken\n",
            "        return not self.broken\n",
            "test_cli.py",
            "names_what_did_not",
        ),
        _m(
            "answer a push before it is on the disk",
            "receiver.py",
            "        await kept\n",
            "        await asyncio.sleep(0)\n",
            "test_receiver.py",
        ),
        _m(
            "answer 200 to a push that could not be kept",
            "receiver.py",
            '            raise _busy("The delivery can\'t be kept at the moment.") from None\n',
            "            pass\n",
            "test_receiver.py",
        ),
        _m(
            "delete spooled pushes before they are landed",
            "spool.py",
            "                yield self._land(files, placement, run_id)\n"
            "                for path in files:\n"
            "                    path.unlink(missing_ok=True)\n",
            "                taken = self._land(files, placement, run_id)\n"
            "                for path in files:\n"
            "                    path.unlink(missing_ok=True)\n"
            "                yield taken\n",
            "test_spool.py",
        ),
        _m(
            "take a disk that fails to sync for one that did",
            "durable.py",
            "        os.fsync(descriptor)\n",
            "        try:\n            os.fsync(descriptor)\n        except OSError:\n            pass\n",
            "chaos/test_storage.py",
            "any_system_call and older and EIO",
        ),
        _m(
            "take a copy that can't be synced for one that is",
            "durable.py",
            "        yield\n    synced.result()\n",
            "        yield\n",
            "test_durable.py",
            "synced_meanwhile",
        ),
        _m(
            "an error of the disk as a bare OSError",
            "durable.py",
            "        raise StorageError(\n            f\"{path} can't be written: {error.strerror}.",
            "        raise\n        raise StorageError(\n            f\"{path} can't be written: {error.strerror}.",
            "chaos/test_storage.py",
            "read_only_disk",
        ),
    ),
    "what was landed once is never taken away": (
        _m(
            "overwrite instead of merge",
            "lake/rows.py",
            "    merged = _versions([*held, *received], id_column)\n",
            "    merged = _versions(received, id_column)\n",
            "test_lake.py",
        ),
        _m(
            "drop the landing lock",
            "lake/raw.py",
            "        with self.lock(raw_lock(path)):\n            sweep(path)\n"
            "            held = self._read_or_quarantine(path, self._read_landed)\n",
            "        with suppress():\n            held = self._read_or_quarantine(path, self._read_landed)\n",
            "test_lake.py",
            "same_window_at_once",
        ),
        _m(
            "drop the lock of pushed leads",
            "lake/raw.py",
            "        with self.lock(raw_lock(path)):\n            sweep(path)\n"
            "            held = self._read_or_quarantine(path, self._read_pushed)\n",
            "        with suppress():\n            held = self._read_or_quarantine(path, self._read_pushed)\n",
            "test_lake.py",
            "pushed_leads",
        ),
        _m(
            "leave a lead out of two with one id",
            "lake/rows.py",
            "        versions = found.setdefault(row[id_column], {})\n",
            "        versions = found[row[id_column]] = {}\n",
            "test_lake.py",
        ),
        _m(
            "believe a damaged file",
            "lake/sealed.py",
            "    if not is_intact(content):\n",
            "    if False:\n",
            "test_lake.py",
        ),
        _m(
            "believe a file of another window",
            "lake/sealed.py",
            '    if facts["path"] != relative or ',
            "    if ",
            "test_lake.py",
        ),
        _m(
            "no quarantine: a bad file stops its neighbours",
            "lake/quarantine.py",
            "            self._quarantine(path, str(error))\n            return None\n",
            "            raise\n",
            "test_lake.py",
        ),
        _m(
            "delete a bad file instead of setting it aside",
            "lake/quarantine.py",
            "            path.replace(aside)\n            sync(aside.parent)\n",
            "            path.unlink()\n            sync(aside.parent)\n",
            "test_lake.py",
        ),
        _m(
            "believe a damaged push",
            "spool.py",
            "        if not is_whole_delivery(content):\n",
            "        if False:\n",
            "test_spool.py",
        ),
        _m(
            "sweep a push that is being written",
            "spool.py",
            "                if time.time() - leftover.stat().st_mtime > older_than_seconds:\n",
            "                if leftover.exists():\n",
            "test_spool.py",
        ),
        _m(
            "pulls side by side, each with a pace of its own",
            "runs.py",
            "    default_limit: 1\n",
            "    default_limit: 9\n",
            "test_runs.py",
            "of_two_pulls",
        ),
        _m(
            "nobody looks for runs that go on for ever",
            "runs.py",
            "run_monitoring:\n  enabled: true\n",
            "run_monitoring:\n  enabled: false\n",
            "test_runs.py",
            "go_on_for_ever",
        ),
        _m(
            "hold up all writers for as long as copying a large event log takes",
            "event_log.py",
            " or (pages - free) * size > _QUICKLY_COPIED_BYTES",
            "",
            "test_event_log.py",
            "made_smaller",
        ),
        _m(
            "an event log that a power cut can take whole",
            "event_log.py",
            '"pragma synchronous = normal"',
            '"pragma synchronous = off"',
            "test_event_log.py",
            "power_cut",
        ),
        _m(
            "a lock on tokens that is waited for without end",
            "auth/tokens.py",
            "LOCK_DEADLINE_SECONDS = 45.0",
            "LOCK_DEADLINE_SECONDS = 4500.0",
            "test_auth.py",
            "outlasts_a_token_request",
        ),
        _m(
            "leave the drafts of killed publications",
            "warehouse/publication.py",
            '            with self._lake.lock("warehouse"):\n                self._sweep()\n',
            '            with self._lake.lock("warehouse"):\n',
            "test_warehouse.py",
            "killed_publications_left",
        ),
        _m(
            "mix the leads of two portals",
            "lake/state.py",
            "        if remembered != origin:\n",
            "        if False:\n",
            "test_lake.py",
        ),
        _m(
            "fill a full disk with half of a file in its place",
            "durable.py",
            "            publish_file(draft, path)\n",
            "            path.write_bytes(content)\n            draft.unlink()\n",
            "chaos/test_storage.py",
            "disk_that_is_full and landing",
        ),
        _m(
            "a kill leaves half of a file in its place",
            "durable.py",
            "            publish_file(draft, path)\n",
            "            path.write_bytes(content)\n            draft.unlink()\n",
            "chaos/test_storage.py",
            "any_system_call and older and kill",
        ),
        _m(
            "take a disk that can't be read for a damaged file",
            "lake/sealed.py",
            "    except OSError as error:\n        raise not_read(path, error) from error\n    if not",
            "    except OSError as error:\n        raise UnreadableError from error\n    if not",
            "chaos/test_storage.py",
            "any_system_call and older and EIO",
        ),
        _m(
            "drop the landing lock between processes",
            "lake/raw.py",
            "        with self.lock(raw_lock(path)):\n            sweep(path)\n"
            "            held = self._read_or_quarantine(path, self._read_landed)\n",
            "        with suppress():\n            held = self._read_or_quarantine(path, self._read_landed)\n",
            "chaos/test_storage.py",
            "land_one_window",
        ),
        _m(
            "a bad raw file stops its neighbours on their way to the analyst",
            "lake/quarantine.py",
            "            self._quarantine(path, str(error))\n            return None\n",
            "            raise\n",
            "chaos/test_storage.py",
            "damaged_file and raw",
        ),
    ),
    "what is forgotten decides nothing": (
        _m(
            "forget a window's only plan",
            "event_log.py",
            "            and logged.id < materialized.id\n",
            "            and true\n",
            "test_housekeeping.py",
            "test_no_state_is_read",
        ),
        _m(
            "forget the newest materialization",
            "event_log.py",
            "        logged.id < newest.id\n",
            "        logged.id <= newest.id\n",
            "test_housekeeping.py",
            "test_no_state_is_read",
        ),
        _m(
            "forget the run that a failure is read from",
            "housekeeping.py",
            "        if run_id not in needed:\n",
            "        if run_id:\n",
            "test_housekeeping.py",
            "test_no_state_is_read",
        ),
        _m(
            "keep the log of a run that a failure is read from",
            "housekeeping.py",
            "        if run_id not in needed or log.has_log(run_id):\n",
            "        if run_id not in needed:\n",
            "test_housekeeping.py",
            "test_no_state_is_read",
        ),
        _m(
            "forget what is young",
            "event_log.py",
            "where logged.id <= :last_id\n",
            "where :last_id is not null\n",
            "test_housekeeping.py",
            "young",
        ),
    ),
    "a downgrade says that it is one": (
        _m(
            "stage anew what a newer version staged",
            "lake/staged.py",
            "        self.take_staged_format()\n        writing",
            "        writing",
            "test_earlier_versions.py",
            "downgrade and staged",
        ),
        _m(
            "publish anew what a newer version published",
            "warehouse/publication.py",
            "                self._lake.take_format(FILE_NAME, SCHEMA_VERSION)\n",
            "",
            "test_earlier_versions.py",
            "downgrade and duckdb",
        ),
        _m(
            "forget at a downgrade that there was a newer version",
            "lake/state.py",
            "            if highest < number:\n",
            "            if highest != number:\n",
            "test_earlier_versions.py",
            "downgrade",
        ),
    ),
    "what outlives the disk is whole": (
        _m(
            "write the list of a backup before its contents",
            "backup/copying.py",
            "            entries += [adding.content(",
            "            store.write(Backup(FORMAT, len(store.names()) + 1, now, owner, entries))\n"
            "            entries += [adding.content(",
            "test_backup.py",
            "killed_anywhere",
        ),
        _m(
            "remove old contents before the new list is written",
            "backup/copying.py",
            "        store.write(backup)\n",
            "        for content in set(store.held()) - {entry.sha256 for entry in entries}:\n"
            "            store._path(content).unlink()\n"
            "        store.write(backup)\n",
            "test_backup.py",
            "killed_anywhere",
        ),
        _m(
            "back raw up before the spool",
            "backup/copying.py",
            "                for part in PARTS\n",
            "                for part in reversed(PARTS)\n",
            "test_backup.py",
            "taken_in_meanwhile",
        ),
        _m(
            "restore what is damaged",
            "backup/store.py",
            "        return digest.hexdigest() == entry.sha256\n",
            "        return True\n",
            "test_backup.py",
            "flipped_bit",
        ),
        _m(
            "set aside as damaged what a newer version wrote",
            "lake/sealed.py",
            '        raise StorageError(\n            f"{path} has format',
            '        raise UnreadableError(\n            f"{path} has format',
            "test_earlier_versions.py",
            "newer_version",
        ),
        _m(
            "stage no file of windows that an earlier version staged",
            "flatten/columns.py",
            'stand_in="staged.rows"',
            'stand_in="null"',
            "test_earlier_versions.py",
            "without_staging_anew",
        ),
        _m(
            "take a file that a full disk cut short for whole",
            "backup/store.py",
            '"wb")\n\n\nclass _Format',
            '"wb", buffering=0)\n\n\nclass _Format',
            "test_backup.py",
            "half_of_a_file",
        ),
        _m(
            "keep the half of a suppression list that a killed restore moved",
            "backup/restoring.py",
            "        _put_in_place(whole, roots)\n        return Restored(",
            "        if _holds(roots[PRIVACY]):\n            shutil.rmtree(whole / PRIVACY)\n"
            "        _put_in_place(whole, roots)\n        return Restored(",
            "test_backup.py",
            "half_was_moved",
        ),
        _m(
            "call what the suppression list withholds lost",
            "verification.py",
            "sum(not suppressed.withheld.is_known(kind.name, lead_id) for lead_id in raw - staged)",
            "len(raw - staged)",
            "test_verification.py",
            "withholds",
        ),
        _m(
            "let a rotten file push out its copy",
            "backup/copying.py",
            "            if before is not None and adding.has(before):\n                entries.append(before)\n",
            "            if False:\n                entries.append(before)\n",
            "test_backup.py",
            "rots",
        ),
        _m(
            "restore over a living folder",
            "backup/restoring.py",
            "        if name != PRIVACY and (there := _holds(root)):\n",
            "        if False and (there := _holds(root)):\n",
            "test_backup.py",
            "living_folder",
        ),
        _m(
            "copy a database as a file",
            "backup/parts.py",
            "                source.backup(copy)\n",
            "                draft.write_bytes(path.read_bytes())\n",
            "test_backup.py",
            "database",
        ),
        _m(
            "copy secrets without being asked",
            "backup/parts.py",
            '        if f"{name}_FILE" in VARIABLES and not with_secrets:\n',
            "        if False:\n",
            "test_backup.py",
            "on_request",
        ),
        _m(
            "count staged leads as if raw had them",
            "verification.py",
            " for lead_id in raw - staged):\n",
            " for lead_id in raw - staged - raw):\n",
            "test_verification.py",
            "not_staged",
        ),
    ),
    "no lead is missed unseen": (
        _m(
            "trust any 200: an object without the list is empty",
            "slicing.py",
            "    if not found:\n        raise InvalidAnswerError(\n"
            '            f"The body ({len(body)} bytes) is a JSON object without',
            "    if False:\n        raise InvalidAnswerError(\n"
            '            f"The body ({len(body)} bytes) is a JSON object without',
            "test_contract.py",
        ),
        _m(
            "let leads fall between two pieces of a window",
            "client/pieces.py",
            "    return replace(piece, end=cut), replace(piece, start=cut)\n",
            "    return replace(piece, end=cut), replace(piece, start=cut + timedelta(minutes=1))\n",
            "test_client.py",
            "in_pieces",
        ),
        _m(
            "take what was put together from pieces for as young as the last of them",
            "client/leads.py",
            "            fetched_at=min(moments, ",
            "            fetched_at=max(moments, ",
            "test_client.py",
            "in_pieces",
        ),
        _m(
            "drop what came of a window with what didn't",
            "client/leads.py",
            "        return answer.failure if answer.failure and not answer.leads else answer\n",
            "        return answer.failure or answer\n",
            "test_client.py",
            "costs_no_other",
        ),
        _m(
            "call a window landed of which a piece is missing",
            "lake/raw.py",
            "    is_closed = answer.failure is None and answer.window.is_closed(answer.fetched_at)\n",
            "    is_closed = answer.window.is_closed(answer.fetched_at)\n",
            "test_lake.py",
            "came_of_a_window",
        ),
        _m(
            "forget to land what came of a window",
            "assets/raw.py",
            "            landing = lake.land(outcome, run_id)\n",
            "            if outcome.failure:\n                return outcome.failure\n"
            "            landing = lake.land(outcome, run_id)\n",
            "test_assets.py",
            "costs_its_neighbours",
        ),
        _m(
            "never ask for less than a whole window",
            "client/leads.py",
            "        is_divisible=piece.end - piece.start > SHORTEST_PIECE,\n",
            "        is_divisible=False,\n",
            "test_client.py",
            "in_pieces",
        ),
        _m(
            "let the earlier of two pieces have the newest version",
            "client/pieces.py",
            "        joined.pop(version, None)\n",
            "",
            "test_client.py",
            "two_pieces",
        ),
        _m(
            "trust any status without an error",
            "client/run.py",
            "                    if response.status_code != HTTPStatus.OK:\n",
            "                    if response.status_code >= HTTPStatus.MULTIPLE_CHOICES:\n",
            "test_client.py",
        ),
        _m(
            "a backfill of today leaves the inventory out",
            "cli/windows.py",
            "last == session.today and session.settings.has_inventory):\n",
            "False):\n",
            "test_cli.py",
            "pulls_the_inventory",
        ),
        _m(
            "have DuckDB say what a zone's day is",
            "flatten/statement.py",
            "    define_local_time(db, zone)\n",
            "    define_local_time(db, ZoneInfo(zone.key))\n",
            "test_flatten.py",
            "knows_another_time",
        ),
        _m(
            "let the first partition move with every day",
            "resources.py",
            "                self.lake.remember_start_date(date.fromisoformat(self.first_day))\n",
            "                pass\n",
            "test_definitions.py",
            "first_day",
        ),
        _m(
            "pull beside another pull",
            "assets/raw.py",
            "    with lake.pulling():\n        yield\n",
            "    yield\n",
            "test_cli.py",
            "waits_for_its_turn",
        ),
        _m(
            "take an empty line of .env for a file",
            "definitions.py",
            "        for name, value in filled_in(environment).items()\n",
            "        for name, value in environment.items()\n",
            "test_definitions.py",
            "empty",
        ),
        _m(
            "take a gzip body that is cut off for a whole one",
            "client/body.py",
            "    if is_begun and not decoder.eof:\n",
            "    if False:\n",
            "test_client.py",
        ),
        _m(
            "an empty window leaves no file",
            "lake/raw.py",
            "            replace_file(path, parquet(merged.rows, RAW_SCHEMA, facts |",
            "            if merged.rows:\n                replace_file(path, parquet(merged.rows, RAW_SCHEMA, facts |",
            "test_lake.py",
            "never_fetched",
        ),
        _m(
            "forget that the window was looked at where nothing changed",
            "lake/raw.py",
            "            replace_file(path, parquet(merged.rows, RAW_SCHEMA, facts |",
            "            if is_changed:\n                replace_file(path, parquet(merged.rows, RAW_SCHEMA, facts |",
            "test_lake.py",
            "same_answer_twice",
        ),
        _m(
            "call a window whole that the portal had begun to delete",
            "lake/raw.py",
            "    is_complete = is_closed and answer.window.days_left(answer.fetched_at) >= 0\n",
            "    is_complete = is_closed\n",
            "test_lake.py",
        ),
        _m(
            "call a window closed that was pulled before its end",
            "lake/raw.py",
            "    is_closed = answer.failure is None and answer.window.is_closed(answer.fetched_at)\n",
            "    is_closed = True\n",
            "test_lake.py",
        ),
        _m(
            "days of 24 hours",
            "window.py",
            "    return _first_moment(day, zone), _first_moment(day + timedelta(days=1), zone)\n",
            "    return _first_moment(day, zone), _first_moment(day, zone) + timedelta(days=1)\n",
            "test_window.py",
        ),
        _m(
            "give up a window at its first deleted moment",
            "window.py",
            "        return self.end <= now - RETENTION\n",
            "        return self.start <= now - RETENTION\n",
            "test_window.py",
        ),
        _m(
            "drop fields that the contract doesn't know",
            "flatten/statement.py",
            '        extra="extra_of_lead(body)",\n',
            '        extra="null::varchar",\n',
            "test_flatten.py",
            "unknown_fields",
        ),
        _m(
            "cast integers loosely",
            "flatten/casts.py",
            "        when regexp_full_match(v, '{_INTEGER_FORM}') then try_cast(split_part(v, '.', 1) as bigint)\n",
            "        when true then try_cast(v as bigint)\n",
            "test_flatten.py",
            "typed_exactly",
        ),
        _m(
            "cast booleans loosely",
            "flatten/casts.py",
            "as_boolean(v) as case v when 'true' then true when 'false' then false end",
            "as_boolean(v) as try_cast(v as boolean)",
            "test_flatten.py",
            "typed_exactly",
        ),
        _m(
            "stop an inventory search at a cursor that repeats",
            "client/inventory.py",
            "                if page.next_token in seen:\n                    raise InvalidAnswerError(",
            "                if page.next_token in seen:\n                    return\n"
            "                    raise InvalidAnswerError(",
            "test_client.py",
        ),
        _m(
            "a run's keys from partition_keys alone",
            "partitions.py",
            "    elif RANGE_START_TAG in tags:\n",
            "    elif (keys := list(context.partition_keys)):\n        pass\n    elif RANGE_START_TAG in tags:\n",
            "test_runs.py",
        ),
        _m(
            "don't look for lost files",
            "status.py",
            "key in status.landed and file is not None and file.has_landed(window)",
            "key in status.landed",
            "test_sensors.py",
            "lost_file or before_its_end",
        ),
        _m(
            "take a window that was pulled before its end for landed",
            "lake/raw.py",
            "        return self.is_closed and self.is_of(window)\n",
            "        return self.is_of(window)\n",
            "test_sensors.py",
            "before_its_end",
        ),
        _m(
            "take another time zone's window for this one's",
            "lake/raw.py",
            "        return self.is_closed and self.is_of(window)\n",
            "        return self.is_closed\n",
            "test_sensors.py",
            "change_of_the_time_zone",
        ),
        _m(
            "believe for ever what a file once said",
            "lake/raw.py",
            "            yield path, (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, turn)\n",
            "            yield path, ()\n",
            "test_lake.py",
            "known_file",
        ),
        _m(
            "leave the windows of a killed run under way for ever",
            "sensors.py",
            "                context.instance.report_run_failed(\n",
            "                str(\n",
            "test_sensors.py",
            "killed",
        ),
        _m(
            "place no day's lead in the window that the scope names",
            "spool.py",
            "        return day, next(names, PUSH_SCOPE)\n",
            "        return received, next(names, PUSH_SCOPE)\n",
            "test_spool.py",
        ),
        _m(
            "call a window closed whenever it is asked",
            "window.py",
            "        return self.end <= now\n",
            "        return True\n",
            "test_lake.py",
        ),
        _m(
            "a backfill takes pushed leads in and leaves their days as they were",
            "cli/windows.py",
            "{window.day for window in windows if kinds} | pushed)",
            "{window.day for window in windows if kinds})",
            "test_cli.py",
            "what_was_pushed",
        ),
        _m(
            "a day that a publication stages again is staged without a record",
            "assets/published.py",
            "        for staged in publication.staged_again:\n",
            "        for staged in publication.staged_again[:0]:\n",
            "test_damage.py",
            "recorded_as_staged",
        ),
        _m(
            "what a killed command landed stays unstaged",
            "cli/session.py",
            "        if left := self.unstaged() - touched:\n",
            "        if left := self.unstaged() & touched:\n",
            "test_cli.py",
            "killed_backfill",
        ),
        _m(
            "what a killed command took in stays unstaged",
            "flatten/windows.py",
            "    unstaged = _days_with_unstaged_pushes(lake, kind, asked)\n",
            "    unstaged: set[date] = set()\n",
            "test_cli.py",
            "killed_command",
        ),
        _m(
            "take a pushed lead for staged of which an older version is",
            "flatten/windows.py",
            "        if any(staged.get((day, lead_id), -1) < sequence for",
            "        if any((day, lead_id) not in staged for",
            "test_cli.py",
            "killed_command",
        ),
        _m(
            "replace a day's staged files by ones that lack a lead",
            "flatten/counts.py",
            "    raise UnbalancedError(staged, rows)\n",
            "    return staged\n",
            "test_flatten.py",
            "not_add_up",
        ),
        _m(
            "publish a staged file that has changed on the disk",
            "lake/staged.py",
            "return path if is_intact(path.read_bytes()) else None\n",
            "return path if path.read_bytes() else None\n",
            "chaos/test_storage.py",
            "damaged_file and staged",
        ),
        _m(
            "read a staged file again that has changed on the disk",
            "warehouse/winners.py",
            "                        if self._lake.whole_staged(table, day) is None:\n",
            "                        if False:\n",
            "test_damage.py",
            "rots_after",
        ),
        _m(
            "let a day go whose staged file is gone",
            "warehouse/publication.py",
            "            broken = {day for table, day in before.files.keys() - wanted.files.keys() if table in own}\n",
            "            broken: set[date] = set()\n",
            "test_damage.py",
            "broken_staged_file",
        ),
        _m(
            "drop a day that can't be staged from what is published",
            "warehouse/publication.py",
            "        files |= {key: fingerprint for key, fingerprint in before.files.items() if key in kept}\n",
            "",
            "test_damage.py",
            "cannot_be_staged",
        ),
        _m(
            "let leads go with a damaged raw file",
            "flatten/batches.py",
            "            retain(db, kind, staged_before(db, lake, kind, taken, name), given_up)\n",
            "            retain(db, kind, {}, given_up)\n",
            "test_damage.py",
            "readers_keep",
        ),
        _m(
            "let what was published go with a damaged staged file",
            "flatten/retaining.py",
            "    if any(unread.values()) and published.exists():\n",
            "    if False:\n",
            "test_flatten.py",
            "taken_from_what_is_published",
        ),
        _m(
            "let an older version replace one that raw has lost",
            "flatten/retaining.py",
            "        where (new.sequence is null or new.sequence < held.sequence)\n",
            "        where new.sequence is null\n",
            "test_flatten.py",
            "newer_version_that_raw_has_lost",
        ),
        _m(
            "call a window landed whose raw file is damaged",
            "sql/mart_coverage.sql",
            "        when cleaned.is_damaged then 'damaged'\n",
            "",
            "test_damage.py",
            "readers_keep",
        ),
        _m(
            "a staged file without its seal",
            "lake/staged.py",
            "                        path.write_bytes(seal(path.read_bytes()))\n",
            "",
            "test_lake.py",
            "bit_of_a_staged_file",
        ),
        _m(
            "load only the first day of what is loaded together",
            "warehouse/loading.py",
            "            parts[-1] = (parts[-1][0], day)\n",
            "            pass\n",
            "test_warehouse.py",
            "building_anew",
        ),
        _m(
            "drop unknown fields of lists",
            "flatten/statement.py",
            '        extra="extra_of_element",\n',
            '        extra="null::varchar",\n',
            "test_flatten.py",
            "problems_and_extras",
        ),
        _m(
            "read a list again for each of its elements",
            "flatten/repair.py",
            "for members in _OBJECTS.decode(text)]",
            "for members in (_OBJECTS.decode(text)[at] for at in range(number))]",
            "test_flatten.py",
            "grows_as_the_lead_does",
        ),
        _m(
            "take the unknown fields of one list for another's",
            "flatten/statement.py",
            "                not list_has_any(_problems, [{ways_there}]) as is_first\n",
            "                true as is_first\n",
            "test_flatten.py",
            "owner_stands_twice",
        ),
        _m(
            "keep what is nested as deep as one thread's stack happens to bear",
            "flatten/repair.py",
            "_MAX_NESTING: Final = 500\n",
            "_MAX_NESTING: Final = 5000\n",
            "test_flatten.py",
            "fuller_stack",
        ),
        _m(
            "round amounts",
            "flatten/casts.py",
            "        when regexp_full_match(v, '{_AMOUNT_FORM}') then try_cast(v as decimal(18, 2))\n",
            "        when true then try_cast(v as decimal(18, 2))\n",
            "test_flatten.py",
            "typed_exactly",
        ),
        _m(
            "trim texts",
            "flatten/casts.py",
            '        else v\n    end""",\n    "as_boolean(v)',
            '        else trim(v)\n    end""",\n    "as_boolean(v)',
            "test_flatten.py",
            "typed_exactly",
        ),
        _m(
            "strip ids",
            "contract.py",
            "        return value if isinstance(value, str) and value.strip() and value.encode() else None\n",
            "        return value.strip() or None if isinstance(value, str) and value.encode() else None\n",
            "test_contract.py",
        ),
        _m(
            "leave the windows of a killed worker under way for ever",
            "sensors.py",
            "                context.instance.report_run_failed(\n",
            "                str(\n",
            "chaos/test_orchestration.py",
            "killed_run_worker",
        ),
        _m(
            "leave the windows of a run that lost its database under way for ever",
            "sensors.py",
            "                context.instance.report_run_failed(\n",
            "                str(\n",
            "chaos/test_orchestration.py",
            "locks_costs_no_window and runs.db",
        ),
        _m(
            "no patience with an event log that is locked",
            "event_log.py",
            '"timeout": SQLITE_BUSY_TIMEOUT_SECONDS',
            '"timeout": 1',
            "chaos/test_orchestration.py",
            "locks_costs_no_window and index.db",
        ),
        _m(
            "begin anew where the start date can't be read",
            "lake/state.py",
            "            return date.fromisoformat(remembered)\n        except ValueError:\n",
            "            return date.fromisoformat(remembered)\n        except ValueError:\n"
            "            return date(2000, 1, 1)\n",
            "chaos/test_orchestration.py",
            "code_location",
        ),
        _m(
            "take what lands during a staging for staged",
            "assets/staged.py",
            "newly_updated()\n).since(AutomationCondition.newly_requested())\n",
            "newly_updated()\n).since_last_handled()\n",
            "test_assets.py",
            "lands_after",
        ),
        _m(
            "keep what was evaluated for ever",
            "housekeeping.py",
            "storage.purge_asset_evaluations(before=before.timestamp())",
            "pass",
            "test_housekeeping.py",
            "forgotten_after",
        ),
        _m(
            "follow the staged table that is recorded first, and miss what a killed run left unrecorded",
            "assets/staged.py",
            "if table == windows_table(kind) else None",
            "if table == kind.table else None",
            "test_assets.py",
            "recorded_is_evaluated",
        ),
        _m(
            "never repeat a staging that failed",
            "assets/staged.py",
            "    AutomationCondition.execution_failed()\n    | ",
            "    ",
            "test_assets.py",
            "staging_that_failed",
        ),
        _m(
            "a check that breaks passes",
            "assets/checks.py",
            "            passed=False,\n",
            "            passed=True,\n",
            "test_assets.py",
            "told_as_such",
        ),
        _m(
            "a green day hides a red one",
            "assets/staged.py",
            "what for day, what in before.items() if",
            "what for day, what in () if",
            "test_assets.py",
            "each_check_of_staged_days",
        ),
        _m(
            "a staging of no day passes its checks",
            "assets/staged.py",
            "        if staged or wrong:\n",
            "        if True:\n",
            "test_assets.py",
            "stages_nothing",
        ),
        _m(
            "never look at a landed day again",
            "status.py",
            "            if due_at is not None and not due_at <= looked_at[scope.key] <= now:\n",
            "            if False:\n",
            "test_sensors.py",
            "listed_on_the_fifth",
        ),
        _m(
            "take an answer from the future for a look",
            "status.py",
            "not due_at <= looked_at[scope.key] <= now:\n",
            "looked_at[scope.key] < due_at:\n",
            "test_sensors.py",
            "ran_ahead",
        ),
        _m(
            "look no more shortly before the portal deletes",
            "retry.py",
            "LOOKS_AFTER_DAYS = (7, 14, 21, 28)\n",
            "LOOKS_AFTER_DAYS = (7, 14, 21)\n",
            "test_sensors.py",
            "however_long_nobody",
        ),
        _m(
            "never ask again for what was refused",
            "retry.py",
            "        elif (next_at := failure.next_attempt_at(key)) <= now or failure.failed_at > now:\n",
            "        elif (next_at := failure.next_attempt_at(key)) <= now and not failure.is_permanent:\n",
            "test_retry.py",
        ),
        _m(
            "wait a year for what failed by a clock that ran ahead",
            "retry.py",
            "(key)) <= now or failure.failed_at > now:\n",
            "(key)) <= now:\n",
            "test_retry.py",
            "ran_ahead",
        ),
        _m(
            "a corrected secret changes nothing",
            "sensors.py",
            "            known.note_settings(asked_with)\n",
            "            pass\n",
            "test_sensors.py",
            "wrong_secret",
        ),
        _m(
            "a run that fails as a whole says nothing of its windows",
            "assets/raw.py",
            "            for window in left:\n",
            "            for window in ():\n",
            "test_sensors.py",
            "setting_that_was_missing",
        ),
        _m(
            "a refused window rings nowhere",
            "status.py",
            "last.observed_at, last.is_permanent, last.error",
            "last.observed_at, False, last.error",
            "test_assets.py",
            "refused_window",
        ),
        _m(
            "let a refused run ring at night only",
            "sensors.py",
            "        if is_refused:\n",
            "        if False:\n",
            "test_sensors.py",
            "rings_within",
        ),
        _m(
            "leave what an answer with a piece missing added to a closed window unstaged",
            "flatten/windows.py",
            "        if not landed <= staged[day]:\n",
            "        if not {one[:2] for one in landed} <= {one[:2] for one in staged[day]}:\n",
            "test_sensors.py",
            "what_came_of_a_failed_window",
        ),
        _m(
            "leave what came of a failed window unstaged",
            "sensors.py",
            "        if unstaged:  # the publication follows\n",
            "        if False:\n",
            "test_sensors.py",
            "although_nothing",
        ),
        _m(
            "never retry what a full disk didn't take",
            "errors.py",
            '    default_reason = "storage"\n',
            '    default_reason = "storage"\n    is_transient = False\n',
            "test_assets.py",
            "cannot_be_landed",
        ),
    ),
    "each lead is visible once, in its newest version": (
        _m(
            "an older answer that lands later overwrites",
            "lake/rows.py",
            "        if _place(row) > _place(first):\n",
            "        if True:\n",
            "test_lake.py",
            "any_order",
        ),
        _m(
            "a version that comes back counts by when it was first received",
            "lake/rows.py",
            "        if _place(row) > _place(first):\n",
            "        if False:\n",
            "test_lake.py",
            "comes_back",
        ),
        _m(
            "an unchanged lead counts as new each time",
            "lake/rows.py",
            'versions[row["payload"]] = first | {"sequence": row["sequence"], "position": row["position"]}\n',
            'versions[row["payload"]] = row\n',
            "test_lake.py",
            "first_received",
        ),
        _m(
            "the clock alone decides what is newer",
            "lake/state.py",
            "            drawn = max(last + (SEQUENCE_STEP if synced is None else 1), now)\n",
            "            drawn = now\n",
            "test_lake.py",
            "set_back",
        ),
        _m(
            "a power cut gives numbers twice",
            "lake/state.py",
            "            drawn = max(last + (SEQUENCE_STEP if synced is None else 1), now)\n",
            "            drawn = max(last + 1, now)\n",
            "test_lake.py",
            "power_cut",
        ),
        _m(
            "a day that was confirmed is no newer than it was",
            "warehouse/winners.py",
            '    sql = f"update {leads} set sequence = confirmed.sequence from',
            '    sql = f"update {leads} set sequence = {leads}.sequence from',
            "test_warehouse.py",
            "another_day_or_branch or pulled_again",
        ),
        _m(
            "a day pulled again is made anew with all its marts",
            "warehouse/winners.py",
            "            and row({staged}) is not distinct from row({held})\n",
            "            and false\n",
            "test_warehouse.py",
            "pulled_again",
        ),
        _m(
            "what was staged before there were sequences counts for nothing",
            "flatten/columns.py",
            'stand_in="epoch_us(staged.fetched_at)",',
            'stand_in="0",',
            "test_warehouse.py",
            "before_there_were",
        ),
        _m(
            "what a killed reader left stays",
            "warehouse/reading.py",
            "        if not lake.is_reading(folder.name):\n",
            "        if False:\n",
            "test_warehouse.py",
            "killed_reader",
        ),
        _m(
            "sweep what a living reader reads",
            "warehouse/reading.py",
            "        if not lake.is_reading(folder.name):\n",
            "        if True:\n",
            "test_warehouse.py",
            "killed_reader",
        ),
        _m(
            "an answer counts from when it comes",
            "client/run.py",
            "            sequence = self._service.next_sequence() if self._service.next_sequence else None\n"
            "            outcome = await self._ask_once(http, spec, request, read)\n",
            "            outcome = await self._ask_once(http, spec, request, read)\n"
            "            sequence = self._service.next_sequence() if self._service.next_sequence else None\n",
            "test_order_of_receipt.py",
            "slower",
        ),
        _m(
            "the receiver forgets in which order deliveries came",
            "receiver.py",
            "            await self._writer.write([PushedLead(kind, lead, now, sequence) for kind, lead in leads])\n",
            "            await self._writer.write([PushedLead(kind, lead, now, 0) for kind, lead in leads])\n",
            "test_order_of_receipt.py",
            "comes_back",
        ),
        _m(
            "a restored folder counts from the clock",
            "lake/state.py",
            "            if _read_sequence(file) < held:\n",
            "            if False:\n",
            "test_lake.py",
            "restored_without",
        ),
        _m(
            "set aside what an older version wrote",
            "lake/sealed.py",
            '    if version == "1":\n',
            '    if version == "0":\n',
            "test_lake.py",
            "first_format",
        ),
        _m(
            "the oldest version within a day counts",
            "flatten/raw.py",
            "partition by day, lead_id order by sequence desc, position desc",
            "partition by day, lead_id order by sequence, position desc",
            "test_flatten.py",
            "newest_version",
        ),
        _m(
            "a lead is there once for each window of a day",
            "flatten/raw.py",
            "order by sequence desc, position desc, scope, source) > 1\n",
            "order by sequence desc, position desc, scope, source) > 9\n",
            "test_flatten.py",
            "newest_version",
        ),
        _m(
            "no dedupe across days",
            "warehouse/winners.py",
            "partition by lead_id order by sequence desc, day desc, is_staged",
            "partition by lead_id, day order by sequence desc, is_staged",
            "test_warehouse.py",
            "two_days_hold",
        ),
        _m(
            "the oldest version of all days counts",
            "warehouse/winners.py",
            "partition by lead_id order by sequence desc, day desc, is_staged",
            "partition by lead_id order by sequence, day, is_staged",
            "test_warehouse.py",
            "two_days_hold",
        ),
        _m(
            "forget the other days of a lead that its day has lost",
            "warehouse/winners.py",
            '    if db.execute("select count(*) from lost").fetchall() != [(0,)]:\n',
            "    if False:\n",
            "test_warehouse.py",
            "winning_day_gives_it_up",
        ),
        _m(
            "the first of a lead's deliveries counts",
            "spool.py",
            "            new, changed = self._lake.land_pushed(group[0].kind, day, scope, group, run_id)\n",
            "            new, changed = self._lake.land_pushed(group[0].kind, day, scope, group[:1], run_id)\n",
            "test_spool.py",
        ),
        _m(
            "deliveries count in the order in which they are taken in",
            "lake/rows.py",
            '"push", run_id, sorted(received, key=lambda one: one[1]))\n',
            '"push", run_id, [(one[0], number, one[2]) for number, one in enumerate(received)])\n',
            "test_spool.py",
            "received_last",
        ),
    ),
    "an analyst's figures are right": (
        _m(
            "a line for a column that is there is suggested",
            "sql/drift.sql",
            "                or taken.column_name is not null\n",
            "",
            "test_drift.py",
            "suggested_lines",
        ),
        _m(
            "a field takes the name of a step of the flattening",
            "flatten/statement.py",
            'return quoted(f"value of {field.column}")',
            "return quoted(field.column)",
            "test_drift.py",
            "suggested_lines",
        ),
        _m(
            "people counted twice in the demo's answer",
            "cli/demo.py",
            "count(distinct person) as people",
            "count(person) as people",
            "test_marts.py",
            "first_query",
        ),
        _m(
            "people counted twice in the figures of a week",
            "sql/figures/mart_people_daily.sql",
            "count(distinct person) filter (lead_day between full_day - 6",
            "count(person) filter (lead_day between full_day - 6",
            "test_marts.py",
            "figures_of_each_mart",
        ),
        _m(
            "a person's row without the person",
            "sql/mart_people_daily.sql",
            "group by lead_day, scope, kind, market, source, portal_source, situation, person",
            "group by all having person is not null",
            "test_marts.py",
            "people_daily",
        ),
        _m(
            "a week's rent in the band of a month's",
            "sql/mart_listing_demand.sql",
            "newest.price * 52 / 12",
            "newest.price",
            "test_marts.py",
            "listing_demand",
        ),
        _m(
            "an answer from before its lead that counts",
            "sql/answers.sql",
            "when written.answered_at < leads.created_at then",
            "when written.answered_at < timestamptz '1990-01-01' then",
            "test_marts.py",
            "time_to_answer",
        ),
        _m(
            "answers that no publication takes up",
            "warehouse/state.py",
            ", answers_fingerprint(lake)),",
            "),",
            "test_warehouse.py",
            "changed_file_of_answers",
        ),
        _m(
            "names that no publication takes up in the marts",
            "warehouse/state.py",
            "MART_MACROS, grid.branches)",
            "MART_MACROS)",
            "test_warehouse.py",
            "new_names_show",
        ),
        _m(
            "a slip in the file of names that takes the names away",
            "assets/published.py",
            'store.query("from branches where name <> scope")',
            'store.query("from branches where false")',
            "test_checks.py",
            "slip",
        ),
    ),
    "readers see the old or the new, never half": (
        _m(
            "each check looks at whichever version is there",
            "warehouse/reading.py",
            "        if self._db is None:\n",
            "        if self._db or not self._db:\n",
            "test_assets.py",
            "one_version",
        ),
        _m(
            "leave a published file that rots until something changes",
            "warehouse/publication.py",
            " or not self._is_as_published(checksum_of(self.path))\n",
            "\n",
            "test_warehouse.py",
            "rots_while",
        ),
        _m(
            "build the file anew on a wrong statement",
            "duck.py",
            "        if _tells_of_damage(error):\n",
            "        if True:\n",
            "test_warehouse.py",
            "wrong_statement",
        ),
        _m(
            "go on with a file that isn't as it was published",
            "warehouse/publication.py",
            "        if self._is_as_published(checksum):\n",
            "        if True:\n",
            "test_warehouse.py",
            "damaged_anywhere",
        ),
        _m(
            "publish in place instead of swapping",
            "warehouse/publication.py",
            "            publish_file(draft, self.path)\n",
            "            shutil.copyfile(draft, self.path)\n",
            "test_warehouse.py",
            "reader_keeps",
        ),
        _m(
            "leave out the blocks that the old headers lead to",
            "warehouse/publication.py",
            "            shutil.copyfileobj(old, new)\n",
            "",
            "test_warehouse.py",
            "test_swaps_one_after",
        ),
        _m(
            "write over blocks that the old headers lead to, by a second checkpoint",
            "warehouse/loading.py",
            '    db.execute("checkpoint")\n',
            '    db.execute("checkpoint")\n    db.execute("create macro one() as 1")\n    db.execute("checkpoint")\n',
            "test_warehouse.py",
            "headers_and_blocks",
        ),
        _m(
            "publish children apart from their leads",
            "warehouse/loading.py",
            "        for table in kind.tables:\n",
            "        for table in kind.tables[:1]:\n",
            "test_warehouse.py",
            "with_its_children",
        ),
        _m(
            "keep the log of a killed reader",
            "warehouse/publication.py",
            '            self.path.with_name(f"{FILE_NAME}.wal").unlink(missing_ok=True)\n',
            "",
            "test_warehouse.py",
            "leftover_log",
        ),
        _m(
            "publish without the lock",
            "warehouse/publication.py",
            '        with self._lake.lock("warehouse"):\n',
            "        if True:\n",
            "test_warehouse.py",
            "two_processes",
        ),
        _m(
            "a staged day that is half replaced",
            "lake/staged.py",
            "                    writing.replace(self._ready_folder(day))\n",
            "                    self._ready_folder(day).mkdir()\n"
            "                    for path in paths.values():\n"
            "                        path.replace(self._ready_folder(day) / path.name)\n",
            "test_lake.py",
            "killed_replacement",
        ),
        _m(
            "a published file that everybody can read",
            "warehouse/publication.py",
            "_PUBLISHED_MODE: Final = 0o440\n",
            "_PUBLISHED_MODE: Final = 0o444\n",
            "test_warehouse.py",
            "read_only",
        ),
        _m(
            "publish in place before the eyes of other processes",
            "warehouse/publication.py",
            "            publish_file(draft, self.path)\n",
            "            shutil.copyfile(draft, self.path)\n",
            "chaos/test_storage.py",
            "hold_the_file_open",
        ),
        _m(
            "publish in place on a full disk",
            "warehouse/publication.py",
            "            publish_file(draft, self.path)\n",
            "            shutil.copyfile(draft, self.path)\n",
            "chaos/test_storage.py",
            "disk_that_is_full and publication",
        ),
        _m(
            "keep the log of a killed writer",
            "warehouse/publication.py",
            '            self.path.with_name(f"{FILE_NAME}.wal").unlink(missing_ok=True)\n',
            "",
            "chaos/test_storage.py",
            "log_that_somebody_left",
        ),
        _m(
            "a staged day that is half replaced when the disk is full",
            "lake/staged.py",
            '                paths = {table: writing / f"{table}.tmp" for table in tables}\n',
            "                paths = {table: self.staged_path(table, day) for table in tables}\n"
            "                for path in paths.values():\n"
            "                    make_folder(path.parent)\n",
            "chaos/test_storage.py",
            "disk_that_is_full and staging",
        ),
    ),
    "patience: nobody is hammered, nothing is retried for ever": (
        _m(
            "ignore Retry-After",
            "retry.py",
            "    return min(retry_after_seconds, self.max_retry_after_seconds) + jitter\n",
            "    return jitter\n",
            "test_retry.py",
        ),
        _m(
            "wait as long as the service likes",
            "retry.py",
            "        return retry_after_seconds is not None and retry_after_seconds > self.max_retry_after_seconds\n",
            "        return False\n",
            "test_client.py",
        ),
        _m(
            "take a Retry-After of the past for patience",
            "retry.py",
            "    return seconds if seconds > 0 else None\n",
            "    return seconds\n",
            "test_retry.py",
        ),
        _m(
            "retry without pause",
            "retry.py",
            "        jitter = rng.uniform(0, ceiling)\n",
            "        jitter = 0.0\n",
            "test_retry.py",
        ),
        _m(
            "retry what is refused for good",
            "client/run.py",
            "        may_pass = error.is_transient and self._over is None\n",
            "        may_pass = self._over is None\n",
            "test_client.py",
        ),
        _m(
            "ask for pieces of a window as often as for a window",
            "client/leads.py",
            "                failures = less.failures\n",
            "                failures = 0\n",
            "test_client.py",
            "outage_costs",
        ),
        _m(
            "retry without a cap",
            "client/run.py",
            "attempt < self._service.policy.max_attempts and ",
            "",
            "test_client.py",
        ),
        _m(
            "no retry budget for a run",
            "client/run.py",
            "policy.max_attempts and self._budget.spend()\n",
            "policy.max_attempts\n",
            "test_client.py",
        ),
        _m(
            "a 429 slows down one request alone",
            "client/verdicts.py",
            "    return seconds_asked_for(error) is not None or (isinstance(error, BusyError) and attempt == 1)\n",
            "    return False\n",
            "test_client.py",
        ),
        _m(
            "no deadline for a request",
            "client/run.py",
            "            async with asyncio.timeout(self._service.deadline_seconds):\n",
            "            async with asyncio.timeout(20 * self._service.deadline_seconds):\n",
            "test_client.py",
            "drop_by_drop",
        ),
        _m(
            "no deadline for a token request",
            "auth/endpoint.py",
            "                asyncio.timeout(TOKEN_DEADLINE_SECONDS),",
            "                asyncio.timeout(None),",
            "test_auth.py",
            "never_ends",
        ),
        _m(
            "no cap on a body",
            "client/body.py",
            "        if size > self._max_bytes:\n",
            "        if False:\n",
            "test_client.py",
        ),
        _m(
            "no cap on a token answer",
            "auth/endpoint.py",
            "                    if len(body) > MAX_ANSWER_BYTES:\n",
            "                    if False:\n",
            "test_auth.py",
        ),
        _m(
            "no cap on a delivery",
            "receiver.py",
            "                    if len(body) > self._limits.body_bytes:\n",
            "                    if False:\n",
            "test_receiver.py",
        ),
        _m(
            "ask for what the portal has deleted",
            "client/leads.py",
            "        if window.is_deleted(self._service.timing.now()):\n",
            "        if False:\n",
            "test_client.py",
        ),
        _m(
            "the sensor retries for ever",
            "retry.py",
            "        if window.is_deleted(now):\n",
            "        if False:\n",
            "test_retry.py",
        ),
        _m(
            "a look that fails is repeated at each tick",
            "sensors.py",
            "        for key in plans[kind].due[:most]:\n",
            "        for key in ():\n",
            "test_sensors.py",
            "look_that_fails",
        ),
        _m(
            "the sensor hammers what is refused",
            "retry.py",
            "        if self.is_permanent:\n",
            "        if False:\n",
            "test_retry.py",
        ),
        _m(
            "the sensor's delays don't grow",
            "retry.py",
            "FIRST_RETRY_SECONDS * 2 ** (self.attempts - 1))\n",
            "FIRST_RETRY_SECONDS)\n",
            "test_retry.py",
        ),
        _m(
            "the sensor forgets how often it asked",
            "sensors.py",
            "        self.windows[key] = FailedWindow(self.windows[key].attempts + 1, now)\n",
            "        self.windows[key] = FailedWindow(self.windows[key].attempts, now)\n",
            "test_sensors.py",
            "doubles",
        ),
        _m(
            "the sensor asks for windows of a pull under way",
            "status.py",
            "    failed = set(cache.deserialize_failed_partition_subsets(windows).get_partition_keys()) - under_way\n",
            "    failed = set(cache.deserialize_failed_partition_subsets(windows).get_partition_keys())\n",
            "test_sensors.py",
            "under_way",
        ),
        _m(
            "the sensor doesn't see the keys of a retry under way",
            "status.py",
            "    under_way = _keys_of_live_runs(instance, kind)\n",
            "    under_way: frozenset[str] = frozenset()\n",
            "test_sensors.py",
            "under_way",
        ),
        _m(
            "two daemons that look at once catch up twice",
            "sensors.py",
            "            run_key=f\"catch up {area} {'+'.join(kind.name for kind in kinds)} {now:%Y-%m-%dT%HZ}\",\n",
            "",
            "test_sensors.py",
            "look_at_once",
        ),
        _m(
            "two daemons that look at once retry twice",
            "sensors.py",
            '        run_key=f"{why}-{now:%Y-%m-%dT%H:%MZ}",\n',
            "",
            "test_sensors.py",
            "look_at_once",
        ),
        _m(
            "plan checks that no pull runs",
            "sensors.py",
            "            asset_check_keys=[],\n",
            "",
            "test_doctor.py",
            "plans_no_connection",
        ),
        _m(
            "a tick that comes again takes pushes in again",
            "sensors.py",
            '            run_key=f"{waiting[0].name} {now:%Y-%m-%dT%HZ}",\n',
            "",
            "chaos/test_orchestration.py",
            "ticks_that_come_again",
        ),
        _m(
            "several runs catch up at once",
            "sensors.py",
            '        if context.instance.get_runs(RunsFilter(statuses=LIVE, tags={_CATCH_UP_TAG: "true"}), limit=1):\n',
            "        if False:\n",
            "test_sensors.py",
            "one_run_catches_up",
        ),
        _m(
            "end runs that are alive",
            "sensors.py",
            "status is DagsterRunStatus.STARTED and not lake.is_running(run.run_id):\n",
            "status is DagsterRunStatus.STARTED:\n",
            "test_sensors.py",
            "second_look",
        ),
        _m(
            "a run holds no lock while it works",
            "resources.py",
            "            if context.run is not None:\n",
            "            if False:\n",
            "test_sensors.py",
            "alive or living",
        ),
        _m(
            "wait for ever for a request",
            "receiver.py",
            "connection.loop.call_later(self._seconds, connection.transport.abort)",
            "connection.loop.call_later(3600, connection.transport.abort)",
            "test_receiver.py",
            "not_waited_for",
        ),
        _m(
            "let connections without a request pile up",
            "receiver.py",
            "        if len(self._timers) > self._most:\n",
            "        if False:\n",
            "test_receiver.py",
            "few_open_files",
        ),
        _m(
            "push out a delivery that is under way",
            "receiver.py",
            "        if is_under_way or self.transport.is_closing():\n",
            "        if self.transport.is_closing():\n",
            "test_receiver.py",
            "longer_than_a_head",
        ),
        _m(
            "no limit on the rate of deliveries",
            "receiver.py",
            "        if self._left < 1:\n",
            "        if False:\n",
            "test_receiver.py",
        ),
        _m(
            "no space between the requests to a service that complained",
            "retry.py",
            "        self._not_before = max(self._not_before, now + self.interval_seconds)\n",
            "        self._not_before = max(self._not_before, now)\n",
            "test_retry.py",
        ),
        Mutant(
            "two daemons ask for everything at each look",
            "sensors.py",
            (
                (
                    "            windows = missing_windows(kind, settings, partitions, lake, context.instance, now, "
                    "CATCH_UP_AFTER)\n",
                    "            every = map(str, partitions.windows.get_partition_keys())\n"
                    "            windows = [Window.from_partition_key(key, settings.zone) for key in every]\n"
                    "            windows = [window for window in windows if window.is_closed(now - CATCH_UP_AFTER)]\n",
                ),
                (
                    '            run_key=f"catch up {area}',
                    '            run_key=f"{now} {area}',
                ),
                (
                    '        if context.instance.get_runs(RunsFilter(statuses=LIVE, tags={_CATCH_UP_TAG: "true"})',
                    "        if False and context.instance.get_runs(RunsFilter()",
                ),
            ),
            ("chaos/test_orchestration.py", "-k", "two_daemons"),
        ),
    ),
    "no one is let in, nothing gets out": (
        Mutant(
            "follow redirects",
            "client/connection.py",
            (
                ('        response.headers.pop("location", None)\n', ""),
                (
                    'event_hooks={"request": [on_request], "response": [on_response]},\n'
                    "            follow_redirects=False,\n",
                    'event_hooks={"request": [on_request], "response": [on_response]},\n'
                    "            follow_redirects=True,\n",
                ),
            ),
            ("test_client.py",),
        ),
        _m(
            "follow redirects of the token server",
            "auth/endpoint.py",
            "timeout=None, follow_redirects=False)",
            "timeout=None, follow_redirects=True)",
            "test_auth.py",
        ),
        _m(
            "send the token to any host",
            "auth/address.py",
            "    return parts.scheme, parts.host, parts.port  #",
            '    return parts.scheme, "", None  #',
            "test_auth.py",
        ),
        _m(
            "drop the token lock",
            "auth/tokens.py",
            "            lock.acquire()\n",
            "            pass\n",
            "test_auth.py",
            "sixteen",
        ),
        _m(
            "don't read the token again after waiting for the lock",
            "auth/flow.py",
            "                stored = self._store.read(key)  # another process may have been faster\n",
            "",
            "test_auth.py",
            "sixteen or share",
        ),
        _m(
            "use a token that has expired",
            "auth/tokens.py",
            "        return min(RENEWAL_MARGIN_SECONDS, self.lifetime_seconds * RENEWAL_MARGIN_SHARE) < left <=",
            "        return left <=",
            "test_auth.py",
        ),
        _m(
            "a new token for every request that stays forbidden",
            "auth/flow.py",
            "        return response.status_code in _REFUSALS and not is_known_good\n",
            "        return response.status_code in _REFUSALS\n",
            "test_auth.py",
        ),
        _m(
            "ask again with a secret that was refused",
            "auth/flow.py",
            "            if self._refusal and self._refusal[0] == key:\n",
            "            if False:\n",
            "test_auth.py",
        ),
        _m(
            "believe a token file that others can write",
            "auth/tokens.py",
            "            if not _is_private_file(path):\n",
            "            if not path.exists():\n",
            "test_auth.py",
        ),
        _m(
            "the secret in an error message",
            "auth/endpoint.py",
            '            named = code if code in _WHAT_TO_DO else "no error code that RFC 6749 knows"\n',
            "            named = code\n",
            "test_auth.py",
        ),
        _m(
            "quote a proxy's address, and its password",
            "auth/address.py",
            "    except (httpx.InvalidURL, ValueError, ImportError):\n        pass\n",
            "    except (ValueError, ImportError):\n        pass\n",
            "test_client.py",
            "proxys_password",
        ),
        _m(
            "quote the words of a proxy",
            "client/verdicts.py",
            "    if isinstance(error, httpx.ProxyError):\n",
            "    if False:\n",
            "test_client.py",
            "another_password",
        ),
        _m(
            "quote a code that looks like one",
            "client/verdicts.py",
            "code if code in _KNOWN_CODES else",
            "code if code.islower() else",
            "test_client.py",
            "never_its_text",
        ),
        _m(
            "call the passphrase wrong where gpg could unlock the key",
            "pgp.py",
            "        return _ask(lambda: key.decryptor(passphrase))\n    except _Refusal:\n        return None\n",
            "        return _ask(lambda: key.decryptor(passphrase))\n"
            "    except _Refusal:\n"
            "        raise CredentialsError(_STILL_LOCKED) from None\n",
            "test_pgp.py",
            "gpg_2_4",
        ),
        _m(
            "the passphrase on gpg's command line",
            "pgp.py",
            '"--passphrase-fd", str(pipe)]',
            '"--passphrase", passphrase or ""]',
            "test_pgp.py",
            "gnupgs_own_mode",
        ),
        _m(
            "the token in the chain of an error",
            "auth/endpoint.py",
            "        # Outside of the except blocks: their errors hold the request, and with it the secret.\n"
            "        raise UnreachableError(",
            "            raise UnreachableError(what)\n        raise UnreachableError(",
            "test_auth.py",
        ),
        _m(
            "the address of a lead's home in a message",
            "client/service.py",
            '        return f"GET {self.path} for {self.about}"\n',
            '        return f"GET {self.path} {dict(self.parameters)} for {self.about}"\n',
            "test_client.py",
        ),
        _m(
            "the words of an error answer in a message",
            "client/verdicts.py",
            "code if code in _KNOWN_CODES else 'a code that is not known'",
            "code",
            "test_client.py",
        ),
        _m(
            "raw files of mode 0644",
            "durable.py",
            'PRIVATE_FILE_MODE), "wb") as file:\n',
            'PRIVATE_FILE_MODE), "wb") as file:\n                os.fchmod(file.fileno(), 0o644)\n',
            "test_lake.py",
        ),
        _m(
            "folders of mode 0755",
            "durable.py",
            "PRIVATE_FOLDER_MODE: Final = 0o700\n",
            "PRIVATE_FOLDER_MODE: Final = 0o755\n",
            "test_lake.py",
        ),
        _m(
            "staged files of mode 0644",
            "lake/staged.py",
            "                        path.chmod(PRIVATE_FILE_MODE)\n",
            "                        path.chmod(0o644)\n",
            "test_lake.py",
        ),
        _m(
            "an id that leaves the data folder",
            "window.py",
            " or not _ID.fullmatch(id_):\n",
            ":\n",
            "test_window.py",
        ),
        _m(
            "take deliveries without a key",
            "receiver.py",
            "        if not hmac.compare_digest(",
            "        if False and not hmac.compare_digest(",
            "test_receiver.py",
        ),
        _m(
            "Basic without form-encoding",
            "auth/endpoint.py",
            'f"{quote_plus(self.client_id)}:{quote_plus(secret)}"',
            'f"{self.client_id}:{secret}"',
            "test_auth.py",
        ),
        _m(
            "a token that lives no moment",
            "auth/endpoint.py",
            "if seconds > 0 else DEFAULT_LIFETIME_SECONDS",
            "if seconds >= 0 else DEFAULT_LIFETIME_SECONDS",
            "test_auth.py",
            "strange_lifetime",
        ),
        _m(
            "believe another user's token",
            "auth/tokens.py",
            "status.st_uid == os.geteuid() and ",
            "",
            "test_auth.py",
            "another_user",
        ),
        _m(
            "no new token after a 401",
            "auth/flow.py",
            "_REFUSALS = frozenset({401, 403})",
            "_REFUSALS = frozenset({403})",
            "test_auth.py",
            "refused_token_is_renewed",
        ),
        Mutant(
            "a new token after each refusal of one request",
            "auth/flow.py",
            (
                (
                    "        if self._is_worth_renewing(response, token):\n",
                    "        while self._is_worth_renewing(response, token) and self.requests_made < 9:\n",
                ),
                (
                    "            self._unhelpful = token\n",
                    "            pass\n",
                ),
            ),
            ("test_auth.py", "-k", "second_refusal"),
        ),
        _m(
            "a new name that one person sent in the table drift",
            "drift.py",
            "PEOPLE_MIN: Final = 3\n",
            "PEOPLE_MIN: Final = 1\n",
            "test_drift.py",
            "three_people",
        ),
        _m(
            "believe that the first people sent each new name",
            "drift.py",
            "coalesce({_IS_NAME} and len(people) = {PEOPLE_MIN}, false)",
            "true",
            "test_drift.py",
            "among_many_people",
        ),
        _m(
            "count a lead for each of its names that are hidden as one",
            "drift.py",
            "            select shape, day, {_NAME_OF_KEY} as name,",
            "            select shape, key, day, {_NAME_OF_KEY} as name,",
            "test_drift.py",
            "among_many_people",
        ),
        _m(
            "miss the second of a key among many",
            "flatten/repair.py",
            "    return len(set(parts)) < len(parts)\n",
            "    return False\n",
            "test_flatten.py",
            "twice_among_many",
        ),
        _m(
            "what may be a person's name in a mart",
            "warehouse/sql_marts.py",
            "when v <> '' then '{HIDDEN}'",
            "else v",
            "test_drift.py",
            "persons_name",
        ),
        _m(
            "suggest a field of what is an object elsewhere",
            "sql/drift.sql",
            " or objects.field is not null\n",
            "\n",
            "test_drift.py",
            "suggested_lines",
        ),
        _m(
            "look for a list that was declared since in what is published",
            "flatten/retaining.py",
            "if missing and _published_name(kind, table) in there:\n",
            "if missing:\n",
            "test_drift.py",
            "suggested_lines",
        ),
        _m(
            "a repeated key that may be a person's name in a check",
            "flatten/trees.py",
            '            return ".".join([*parts, HIDDEN])\n',
            "            return problem\n",
            "test_drift.py",
            "persons_name",
        ),
        _m(
            "Dagster's home open to everybody",
            "runs.py",
            '        replace_file(home / "dagster.yaml", _DAGSTER_YAML.encode())\n',
            "        home.mkdir(parents=True, exist_ok=True)\n"
            '        replace_file(home / "dagster.yaml", _DAGSTER_YAML.encode())\n',
            "test_secrets.py",
            "owner_alone",
        ),
        _m(
            "a report or a push that everybody can read",
            "durable.py",
            "PRIVATE_FILE_MODE: Final = 0o600\n",
            "PRIVATE_FILE_MODE: Final = 0o644\n",
            "test_secrets.py",
            "owner_alone",
        ),
    ),
    "whoever doesn't look is told, once": (
        _m(
            "an alert is repeated at each tick",
            "alerts.py",
            "now - known.told_at >= REPEATED_AFTER[cause.level]",
            "now >= known.told_at",
            "test_alerts.py",
        ),
        _m(
            "nobody is told that it is over",
            "alerts.py",
            "if known.told_at is None or known.is_news:",
            "if known.told_at is not None or known.is_news:",
            "test_alerts.py",
        ),
        _m(
            "have an outage last from its last change of look",
            "alerts.py",
            "_Known(min(cause.since or now, now), ",
            "_Known(now, ",
            "test_watch.py",
            "whatever_it_looks_like",
        ),
        _m(
            "what passes by itself rings at once",
            "alerts.py",
            "now - known.since >= cause.patience",
            "now >= known.since",
            "test_alerts.py",
        ),
        _m(
            "what could not be sent counts as told",
            "watch.py",
            "                        channel.send(alert)",
            "                        memory.note_told(alert)\n                        channel.send(alert)",
            "test_watch.py",
            "sink_that_is_down",
        ),
        _m(
            "a window that is asked for at this moment counts as landed",
            "watch.py",
            "lambda key: key.startswith(unsure)",
            "lambda key: False",
            "test_watch.py",
            "takes_up_at_this_moment",
        ),
        _m(
            "the heartbeat beats for a pull that failed",
            "watch.py",
            'DagsterRunStatus.FAILURE: "/fail"',
            'DagsterRunStatus.FAILURE: ""',
            "test_watch.py",
            "heartbeat",
        ),
        _m(
            "a webhook's address is logged",
            "channels.py",
            "    log.addFilter(hidden)",
            "    log.filters[:] = []",
            "test_channels.py",
            "not_logged",
        ),
    ),
    "it runs on, and says so when it doesn't": (
        _m(
            "leave what was killed dead",
            "supervisor.py",
            '            kept.due_at = now + kept.delay\n            logger.warning(\n                "%s (process',
            '            kept.due_at = float("inf")\n            logger.warning(\n                "%s (process',
            "test_supervisor.py",
            "what_is_killed",
        ),
        _m(
            "end runs with the code location that started them",
            "supervisor.py",
            "if not kept.program.is_shared:",
            "if True:",
            "test_supervisor.py",
            "outlives_it",
        ),
        _m(
            "wait for orphans that have ended",
            "supervisor.py",
            "while os.waitpid(-group, os.WNOHANG) != (0, 0):",
            "while False:",
            "test_supervisor.py",
            "of_orphans",
        ),
        _m(
            "tell a monitor that all is well when nothing can be known",
            "metrics.py",
            'yield _gauge("well", WELL, 0)',
            'yield _gauge("well", WELL, 1)',
            "test_metrics.py",
            "cannot_be_had",
        ),
        _m(
            "leave runs behind at the end",
            "supervisor.py",
            "for is_shared in (False, True):",
            "for is_shared in (False,):",
            "test_supervisor.py",
            "outlives_it",
        ),
        _m(
            "call a home without limits sound",
            "doctor.py",
            "if pools.default_pool_limit == 1 else",
            "if pools else",
            "test_doctor.py",
            "without_our_limits",
        ),
        _m(
            "wait with the word until the portal deletes",
            "health.py",
            "deleted_from <= now + timedelta(days=FAIL_DAYS_BEFORE)",
            "deleted_from <= now",
            "test_health.py",
            "three_days_before",
        ),
        _m(
            "count windows that failed as nothing",
            "health.py",
            "[*(window for _, window in failed), *missing]",
            "missing",
            "test_health.py",
            "counts_what_is_not_landed",
        ),
        _m(
            "call a daemon that hangs well",
            "health.py",
            "now - health.daemon_seen_at > DAEMON_SILENCE",
            "False",
            "test_health.py",
            "no_sign_of_life",
        ),
    ),
    "what is personal goes when its days are over, and figures stay": (
        _m(
            "cut a day too early",
            "privacy/retain.py",
            "day for day in days if day < before",
            "day for day in days if day <= before",
            "test_retain.py",
            "lose_their_person",
        ),
        _m(
            "let what the contract doesn't know stay",
            "privacy/cutting.py",
            'declared = tree.get(text_of(key) or "")',
            'declared = tree.get(text_of(key) or "", _ID)',
            "test_retain.py",
            "lose_their_person",
        ),
        _m(
            "let a personal field stay",
            "privacy/cutting.py",
            "if not field.is_personal:",
            "if True:",
            "test_retain.py",
            "declared_field",
        ),
        _m(
            "let what isn't of its type stay",
            "privacy/cutting.py",
            "return value if _NO_TEXT.fullmatch(value) else None",
            "return value",
            "test_retain.py",
            "declared_field",
        ),
        _m(
            "forget who a person was, so that people count anew",
            "privacy/retain.py",
            "person and _address(person) for",
            "None for",
            "test_retain.py",
            "lose_their_person",
        ),
        _m(
            "lose sight of whoever was cut out of a lead",
            "person/matching.py",
            "any((self.emails | self.cut_emails) & row.emails for row in rows)",
            "any(self.emails & row.emails for row in rows)",
            "test_retain.py",
            "found_in_leads_that_were_cut",
        ),
        _m(
            "cut raw alone",
            "privacy/retain.py",
            "    _cut_staged(lake, kind, day, people)\n    return",
            "    return",
            "test_retain.py",
            "lose_their_person",
        ),
        _m(
            "leave what is deleted in the published file's blocks",
            "privacy/retain.py",
            "lake.want_rebuild()",
            "None",
            "test_retain.py",
            "lose_their_person",
        ),
        _m(
            "have a cut file look landed anew",
            "lake/refusing.py",
            ", modified_ns=modified)",
            ")",
            "test_retain.py",
            "lose_their_person",
        ),
        _m(
            "call a file cut into which a lead came meanwhile",
            "lake/rewriting.py",
            "            if None not in payloads:\n",
            "            if True:\n",
            "test_retain.py",
            "beside_it",
        ),
        _m(
            "take a dry run for a wet one",
            "privacy/retain.py",
            "if not is_dry:",
            "if True:",
            "test_retain.py",
            "lose_their_person",
        ),
    ),
    "a shared copy holds what its allow-list names, and nobody's row stands out": (
        _m(
            "let a word pass that the contract doesn't know",
            "privacy/share.py",
            "when list_contains(getvariable('members'), trim(v)) then readable(v)",
            "when trim(v) <> '' then trim(v)",
            "test_share.py",
            "any_cell",
        ),
        _m(
            "let a number pass as it was received",
            "privacy/share.py",
            "least(floor(v / width) * width, most)",
            "floor(v)",
            "test_share.py",
            "any_cell",
        ),
        _m(
            "let every column pass",
            "privacy/share.py",
            "        for name in table.columns\n    ]\n",
            '        for name in table.columns\n    ] + ["leads.* exclude (is_overseas)"]\n',
            "test_share.py",
            "stays_out or any_cell or named",
        ),
        _m(
            "let a whole postcode pass",
            "privacy/share.py",
            "([0-9][A-Z]{2})?$', 1)",
            "([0-9][A-Z]{2})?$', 0)",
            "test_share.py",
            "outward_half",
        ),
        _m(
            "take four people for a group large enough",
            "privacy/share.py",
            "count(distinct person) < {PEOPLE_MIN}",
            "count(distinct person) < {PEOPLE_MIN} - 1",
            "test_share.py",
            "small_group",
        ),
        _m(
            "count leads and not people for a small group",
            "privacy/share.py",
            "count(distinct person) < {PEOPLE_MIN}",
            "count(*) < {PEOPLE_MIN}",
            "test_share.py",
            "small_group",
        ),
        _m(
            "hash people of every copy under one key",
            "privacy/share.py",
            "secrets.token_bytes(32)",
            "bytes(32)",
            "test_share.py",
            "two_copies",
        ),
        _m(
            "leave the rows in the order of the warehouse",
            "privacy/share.py",
            " order by random()",
            "",
            "test_share.py",
            "two_copies",
        ),
        _m(
            "share who is to be erased and still published",
            "privacy/share.py",
            "            _refuse_who_is_to_go(db, lake)\n",
            "",
            "test_share.py",
            "still_published",
        ),
        _m(
            "let everybody read a shared copy",
            "privacy/share.py",
            "draft.chmod(PRIVATE_FILE_MODE)",
            "draft.chmod(0o644)",
            "test_share.py",
            "private",
        ),
        _m(
            "write a shared copy over a file that is there",
            "privacy/share.py",
            "if file.exists() or file.is_symlink():",
            "if file.is_symlink():",
            "test_share.py",
            "private",
        ),
    ),
    "whoever was erased comes back by no way": (
        _m(
            "land a pull without asking the list",
            "lake/raw.py",
            "            if refused := self.refused([*held_rows, *received]):\n"
            '                held_rows = [row for row in held_rows if row["lead_id"] not in refused]\n'
            "            merged",
            "            refused = set[str]()\n            merged",
            "test_suppression.py",
            "a_pull_lands_nobody",
        ),
        _m(
            "take in a push without asking the list",
            "lake/raw.py",
            'received = [row for row in received if row["lead_id"] not in refused]\n            merged',
            "pass\n            merged",
            "test_suppression.py",
            "a_push_that_waits",
        ),
        _m(
            "keep a push without asking the list",
            "spool.py",
            "        pushed = self._admitted(pushed)\n",
            "",
            "test_suppression.py",
            "a_push_is_refused",
        ),
        _m(
            "forget whose lead a refused push has shown",
            "spool.py",
            "                self._lake.know_leads(suppressed, found)\n",
            "",
            "test_suppression.py",
            "known_from_then_on",
        ),
        _m(
            "erase a spouse whose name another version of a lead bears",
            "person/matching.py",
            "for row in rows if (self.emails | self.cut_emails) & row.emails]",
            "for row in rows]",
            "test_person.py",
            "another_version_bears",
        ),
        _m(
            "have the list mean other leads than those that were shown",
            "person/matching.py",
            "            return row.people <= names\n",
            "            return False\n",
            "test_person.py",
            "another_version_bears",
        ),
        _m(
            "take an address that resembles a name for a mention",
            "person/matching.py",
            '            r"(?<!@)\\b" + r"\\W{1,3}".join(words) + r"\\b(?![\\w.+-]*@)"',
            '            r"\\b" + r"\\W{1,3}".join(words) + r"\\b"',
            "test_person.py",
            "mentions_no_name",
        ),
        _m(
            "call a person gone whom a reader's old file shows to whoever looks by name",
            "privacy/places.py",
            "    for held in held_files([lake.folder.resolve(), dagster_home.resolve()]):",
            "    for held in held_files([]):",
            "test_privacy_erase.py",
            "has_the_old_file_open and descriptor",
        ),
        _m(
            "call a person gone whom a reader's old file shows to whoever looks by the list",
            "privacy/erase.py",
            "    for held in held_files([lake.folder.resolve()]):",
            "    for held in held_files([]):",
            "test_privacy_erase.py",
            "has_the_old_file_open and descriptor",
        ),
        _m(
            "stage without asking the list",
            "flatten/batches.py",
            "            withhold(db, lake, kind)\n",
            '            db.execute("create table withheld (lead_id varchar, window_day date)")\n',
            "test_suppression.py",
            "staging_",
        ),
        _m(
            "publish without asking the list",
            "warehouse/winners.py",
            '    if withheld_leads(db, lake, kind, files_at_hand, "staged.day"):',
            '    if not withheld_leads(db, lake, kind, files_at_hand, "staged.day"):',
            "test_suppression.py",
            "publication_refuses",
        ),
        _m(
            "leave an erased person in old blocks of the published file",
            "warehouse/publication.py",
            "elif is_anew or file.leads_gone:",
            "elif is_anew:",
            "test_suppression.py",
            "publication_refuses",
        ),
        _m(
            "leave an erased person in days that don't change",
            "warehouse/loading.py",
            "        if state.suppressed != wanted.suppressed:\n",
            "        if not state:\n",
            "test_suppression.py",
            "days_that_do_not_change or cannot_be_staged",
        ),
        _m(
            "build the file anew with each id that the list learns",
            "warehouse/publication.py",
            "                if state.schema != wanted.schema:\n",
            "                if (state.schema, state.suppressed) != (wanted.schema, wanted.suppressed):\n",
            "test_suppression.py",
            "learns_ids",
        ),
        _m(
            "publish again what the list has learned from the publication",
            "warehouse/loading.py",
            "    if suppressed.whom == wanted.whom:\n",
            "    if not wanted:\n",
            "test_suppression.py",
            "learns_ids",
        ),
        _m(
            "go on without the list's key",
            "suppression.py",
            "        key = self._key()\n        entries, _, _ = self._entries(key)\n",
            "        try:\n            key = self._key()\n        except StorageError:\n            return NOBODY\n"
            "        entries, _, _ = self._entries(key)\n",
            "test_suppression.py",
            "nothing_goes_on and lose_the_key",
        ),
        _m(
            "go on with a list that lacks an entry",
            "suppression.py",
            "        if not is_known:",
            "        if not is_known and not entries:",
            "test_suppression.py",
            "nothing_goes_on and lose_an_entry",
        ),
        _m(
            "acknowledge an entry that isn't on the disk",
            "suppression.py",
            "                    os.fsync(descriptor)\n",
            "",
            "test_suppression.py",
            "on_the_disk",
        ),
        _m(
            "erase a spouse who shares the telephone",
            "suppression.py",
            "        if entry.any_name:",
            "        if phones:",
            "test_suppression.py",
            "shares_the_telephone",
        ),
        _m(
            "refuse an erased person's new enquiry",
            "suppression.py",
            "(entry.until is None or latest < entry.until)",
            "(entry.until is None or latest)",
            "test_suppression.py",
            "leads_of_before",
        ),
        _m(
            "count a lead that is refused twice as two",
            "lake/refusing.py",
            '" ".join(sorted({*before.split(), *hashed(ids)} - back))',
            '" ".join([*before.split(), *hashed(ids)])',
            "test_suppression.py",
            "counts_them_once",
        ),
        _m(
            "erase from raw and leave the staged days",
            "privacy/erase.py",
            "flatten_days(lake, kind, [day for name, day in stagings if name == kind.name], zone)",
            "flatten_days(lake, kind, [], zone)",
            "test_privacy_erase.py",
            "had_never_been",
        ),
        _m(
            "take a file that was put back for the one that was gone through",
            "lake/gone_through.py",
            "{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns} {stat.st_ino}",
            "",
            "test_privacy_sweep.py",
            "restored_file_is_noticed",
        ),
        _m(
            "look for whoever is added in new files alone",
            "lake/gone_through.py",
            "if state != self._state or",
            "if",
            "test_privacy_sweep.py",
            "killed_erasure_is_finished",
        ),
        _m(
            "read every file each night",
            "lake/gone_through.py",
            "if digest not in self._before:",
            "if True:",
            "test_privacy_sweep.py",
            "nights_read_nothing",
        ),
        _m(
            "call a night well in which the list couldn't be read",
            "assets/privacy.py",
            "if night.troubles:",
            "if False:",
            "test_privacy_sweep.py",
            "fails_loudly",
        ),
        _m(
            "have no publication follow what the night took out",
            "assets/published.py",
            "for kind in LEAD_KINDS), PRIVACY_SWEEP],",
            "for kind in LEAD_KINDS)],",
            "test_privacy_sweep.py",
            "a_publication_follows",
        ),
        _m(
            "call a person gone whatever can't be read",
            "privacy/erase.py",
            "return not (self.leads or self.traces or self.unread)",
            "return not (self.leads or self.traces)",
            "test_privacy_erase.py",
            "open_until",
        ),
        _m(
            "refuse what may have come after the erasure",
            "suppression.py",
            "row.day + timedelta(days=1)",
            "row.day",
            "test_suppression.py",
            "unknown_moment",
        ),
        _m(
            "close an erasure without looking for all that was erased",
            "privacy/erase.py",
            "and {*entry.phones}.issubset(phones)",
            "",
            "test_privacy_erase.py",
            "closes_no_erasure",
        ),
        _m(
            "forget deliveries where the list is held against the folder",
            "privacy/erase.py",
            "for path in Spool(lake).refused()]",
            "for path in []]",
            "test_privacy_erase.py",
            "closes_no_erasure",
        ),
        _m(
            "give a rewritten raw file a new time",
            "lake/refusing.py",
            ", modified_ns=modified)",
            ")",
            "test_suppression.py",
            "rewritten_whole",
        ),
    ),
    "whoever objects or is restricted is left alone until that is lifted": (
        _m(
            "market to who objected",
            "sql/mart_hidden_valuations.sql",
            "        and person not in (select person from pipeline.objected)\n",
            "",
            "test_privacy_object.py",
            "is_not_marketed_to",
        ),
        _m(
            "forget who objected with their next lead",
            "warehouse/loading.py",
            "            if state.objected == wanted.objected:\n",
            "            if not state:\n",
            "test_privacy_object.py",
            "leads_that_come_later",
        ),
        _m(
            "refuse the old leads of who refuses new ones",
            "suppression.py",
            "(entry.since is None or earliest >= entry.since)",
            "(entry.since is None or earliest)",
            "test_privacy_object.py",
            "keeps_the_old_ones",
        ),
        _m(
            "count a lead as refused that has landed since",
            "lake/refusing.py",
            "*hashed(ids)} - back))",
            "*hashed(ids)}))",
            "test_privacy_object.py",
            "keeps_the_old_ones",
        ),
        _m(
            "publish restricted leads",
            "suppression.py",
            "self._meant(Action.ERASE, Action.REFUSE, Action.RESTRICT)",
            "self._meant(Action.ERASE, Action.REFUSE)",
            "test_privacy_object.py",
            "restriction_withholds",
        ),
        _m(
            "leave out for ever what was restricted once",
            "privacy/erase.py",
            "    if not any(entry.action is Action.LIFT for entry in open_entries(suppressed)):\n",
            "    if suppressed.entries:\n",
            "test_privacy_object.py",
            "restriction_withholds",
        ),
        _m(
            "lift an erasure",
            "privacy/objecting.py",
            "        if by_number[number].action not in LIFTABLE:\n",
            "        if not by_number:\n",
            "test_privacy_object.py",
            "never_lifted",
        ),
        _m(
            "lift an objection by a telephone that two share",
            "privacy/objecting.py",
            '        and {*entry.mailboxes}.issubset(hashes(suppressed, "mailbox", sought.mailboxes))\n',
            "",
            "test_privacy_object.py",
            "never_lifted",
        ),
    ),
    "whoever asks for their data gets all of it, and nobody else's": (
        _m(
            "take an address with an invisible character for another one",
            "person/identity.py",
            'in ("Cc", "Cf") and not one.isspace()',
            'in ("Cc",) and not one.isspace()',
            "test_person.py",
            "form_of_an_address",
        ),
        _m(
            "take a number written with 00 for another one",
            "person/identity.py",
            "phonenumbers.parse(part, _REGION)",
            'phonenumbers.parse("+44" + part.strip().lstrip("+").removeprefix("44"), _REGION)',
            "test_person.py",
            "form_of_a_number",
        ),
        _m(
            "take a tag for a part of the same mailbox everywhere",
            "person/identity.py",
            "    if domain in _GMAIL:\n",
            "    local = local.partition('+')[0]\n    if domain in _GMAIL:\n",
            "test_person.py",
            "tags_elsewhere",
        ),
        _m(
            "leave out the versions of a lead that bear another address",
            "privacy/search.py",
            "second = _look(lake, dagster_home, ids,",
            "second = _look(lake, dagster_home, sought,",
            "test_privacy.py",
            "every_place",
        ),
        _m(
            "leave out what a killed writer left",
            "privacy/places.py",
            "                if file not in seen and file.is_file()",
            '                if not name.startswith(".") and file not in seen and file.is_file()',
            "test_privacy.py",
            "every_place",
        ),
        _m(
            "take the leads of whoever shares the telephone",
            "person/matching.py",
            "            return row.people <= names\n",
            "            return True\n",
            "test_person.py",
            "another_name",
        ),
        _m(
            "take the leads of everybody at an office",
            "person/matching.py",
            "NAMES_MAX: Final = 3\n",
            "NAMES_MAX: Final = 99\n",
            "test_person.py",
            "many_share",
        ),
        _m(
            "follow the last of a repeated key alone",
            "person/matching.py",
            "object_pairs_hook=_Fields",
            "object_pairs_hook=lambda pairs: _Fields(list(dict(pairs).items()))",
            "test_person.py",
            "repeated_keys",
        ),
        _m(
            "call a search whole that couldn't read a file",
            "privacy/search.py",
            "return not self.undecoded",
            "return True",
            "test_privacy.py",
            "cannot_be_decoded",
        ),
        _m(
            "show who was found without being asked to",
            "cli/privacy.py",
            "return contact if show else contact.masked()",
            "return contact",
            "test_privacy.py",
            "shows_no_personal_data",
        ),
        _m(
            "run what somebody wrote in their export",
            "privacy/export.py",
            "<td>{escape(text)}",
            "<td>{text}",
            "test_privacy.py",
            "runs_nothing",
        ),
        _m(
            "keep what a killed staging left",
            "warehouse/publication.py",
            "        sweep_stagings(self._lake)\n",
            "",
            "test_warehouse.py",
            "killed_staging",
        ),
        _m(
            "sweep the second names of a staging under way",
            "flatten/batches.py",
            "            with lake.holding_staged(day, timeout_seconds=0):\n                shutil",
            "            if day:\n                shutil",
            "test_warehouse.py",
            "killed_staging",
        ),
        _m(
            "leave an image of the memory behind a crash",
            "definitions.py",
            "\nforgo_core_dumps()\n",
            "\n",
            "test_definitions.py",
            "image_of_its_memory",
        ),
    ),
    "the report tells what is": (
        _m(
            "a day under way counted as a day of the week",
            "sql/figures/days.sql",
            "        max(day) filter (state in ('landed', 'empty', 'partial')) as full_day,\n",
            "        max(day) as full_day,\n",
            "test_report.py",
        ),
        _m(
            "a change told where a day hasn't landed",
            "sql/report/branches.sql",
            "    coalesce(is_comparable, false) as is_comparable\n",
            "    true as is_comparable\n",
            "test_report.py",
        ),
        _m(
            "the people of a week counted once for each lead",
            "sql/report/branches.sql",
            "        count(distinct person) filter (is_last) as people,\n",
            "        count(person) filter (is_last) as people,\n",
            "test_report.py",
        ),
        _m(
            "listings of all time called the week's",
            "sql/report/listings.sql",
            "    where lead_day between full_day - 6 and full_day\n",
            "",
            "test_report.py",
            "listings",
        ),
        _m(
            "a report as long as there are branches",
            "report/report.html.jinja",
            "{% for part in [rows[:shown], rows[shown:]] if part %}\n",
            "{% for part in [rows] if part %}\n",
            "test_report.py",
        ),
        _m(
            "a report that runs what a lead says",
            "report/page.py",
            "        autoescape=True,\n",
            "        autoescape=False,\n",
            "test_report.py",
        ),
    ),
}


@click.command()
@click.argument("words", nargs=-1)
@click.option("--minutes", type=float, help="Begin no further mutant after that long, in the order of turn.py.")
def main(words: Sequence[str], minutes: float | None) -> None:
    """Run the mutants that have one of the words in their name or file; all without words."""
    chosen = [
        mutant
        for mutants in PROMISES.values()
        for mutant in mutants
        if not words or any(word in f"{mutant.file} {mutant.name}" for word in words)
    ]
    os.environ.setdefault(SEED_VARIABLE, str(random.SystemRandom().randrange(10**9)))
    turn = Turn(minutes)
    ordered = turn.ordered(
        chosen,
        lambda mutant: mutant.name,
        lambda mutant: {f"leads_pipeline/{mutant.file}", f"leads_pipeline_tests/{mutant.tests[0]}"},
    )
    # By the tests that should notice, so that these are seen green without a mutant once for all of them.
    selections: dict[tuple[str, ...], list[Mutant]] = {}
    for mutant in ordered:
        selections.setdefault(mutant.tests, []).append(mutant)
    verdicts: dict[Mutant, Verdict] = {}
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        for tried in pool.map(lambda mutants: _all_tried(mutants, turn), selections.values()):
            verdicts |= tried
    for promise, mutants in PROMISES.items():
        if there := [mutant for mutant in mutants if mutant in verdicts]:
            caught = sum(verdicts[mutant].trouble is None for mutant in there)
            click.echo(f"{caught:4} of {len(there)} caught: {promise}")
    left = [mutant for mutant, verdict in verdicts.items() if verdict.trouble]
    click.echo(f"{len(verdicts) - len(left)} of {len(verdicts)} mutants were caught, in {turn.seconds:.0f} s.")
    if len(verdicts) < len(chosen):
        click.echo(f"{len(chosen) - len(verdicts)} more were not in this turn. {SEED_VARIABLE}={turn.seed} repeats it.")
    for mutant in left:
        click.echo(f"*** {mutant.file}, {mutant.name}: {verdicts[mutant].trouble}", err=True)
    sys.exit(1 if left else 0)


def _all_tried(mutants: Sequence[Mutant], turn: Turn) -> dict[Mutant, Verdict]:
    """The verdicts on mutants that the same tests should notice; without those that were not begun in time."""
    if turn.is_over:
        return {}
    if red := _unbroken(mutants[0].tests):
        return dict.fromkeys(mutants, Verdict(0.0, trouble=f"can't be told, the test fails without it: {red}"))
    verdicts: dict[Mutant, Verdict] = {}
    for mutant in mutants:
        if turn.is_over:
            break
        verdict = verdicts[mutant] = _tried(mutant)
        outcome = verdict.caught_by or f"*** {verdict.trouble}"
        click.echo(f"  {verdict.seconds:5.1f} s  {mutant.file:<22} {mutant.name:<58} {outcome}")
    return verdicts


def _unbroken(tests: Sequence[str]) -> str | None:
    """What fails of those tests as the code is; None where nothing does."""
    with _copy() as root:
        code, failed = _pytest(root, tests)
    return None if code in (_PASSED, _NO_TESTS) else f"{' '.join(tests)}: {failed or f'pytest exits with {code}'}"


def _tried(mutant: Mutant) -> Verdict:
    began = time.monotonic()
    with _copy() as root:
        if trouble := mutant.trouble(root):
            return Verdict(0.0, trouble=trouble)
        mutant.apply(root)
        code, failed = _pytest(root, mutant.tests)
    seconds = time.monotonic() - began
    if code == _PASSED:
        return Verdict(seconds, trouble=f"SURVIVED {' '.join(mutant.tests)}")
    if code is None or code == _TESTS_FAILED:
        return Verdict(seconds, caught_by=failed or f"{mutant.tests[0]}, which hangs")
    return Verdict(seconds, trouble=f"pytest exits with {code}: the mutant is no program, or there is no such test")


@contextmanager
def _copy() -> Iterator[Path]:
    """A copy of the source, to be broken."""
    with TemporaryDirectory(prefix="mutant-") as folder:
        for name in ("leads_pipeline", "leads_pipeline_tests", "examples"):
            shutil.copytree(ROOT / name, Path(folder) / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        yield Path(folder)


def _pytest(root: Path, tests: Sequence[str]) -> tuple[int | None, str]:
    """Pytest's exit code, None where it hangs, and the first test that failed."""
    file, *only = tests
    command = [sys.executable, "-m", "pytest", "-x", "--tb=no", "-q", "-p", "no:cacheprovider"]
    command += [f"leads_pipeline_tests/{file}", *(only or ["-m", "not chaos"])]
    # The copy comes before the installed package, for the processes that tests start as well.
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        command,
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            # Also what its tests have started and a mutant has kept from ending.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    failed = _FAILED.search(said)
    return process.returncode, failed.group(1) if failed else ""


if __name__ == "__main__":
    main()

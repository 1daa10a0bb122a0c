"""Raw windows: landing, pushes, the suppression list, damage, clocks, rewriting, and who else can
read the files.
"""

import hashlib
import io
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leads_pipeline.domain.contract import APPLICANT, ReceivedLead
from leads_pipeline.domain.window import RETENTION
from leads_pipeline.errors import StorageError
from leads_pipeline.features.bucket.store import open_store
from leads_pipeline.raw.landing import Landed, Raw
from leads_pipeline.raw.names import (
    list_folders,
    place_of,
    read_failure,
)
from leads_pipeline.raw.rows import PULL, PUSH, Row, merged, microseconds, newest_payloads
from leads_pipeline.raw.store import FolderStore, Store
from leads_pipeline_tests.support.buckets import new_bucket
from leads_pipeline_tests.support.keeping_out import KeptOut
from leads_pipeline_tests.support.sample_answers import (
    CLOSED_AT,
    DAY,
    LATER,
    TWENTY,
    WINDOW,
    lead,
)

PLACE = place_of(APPLICANT, WINDOW)
NOW = CLOSED_AT + timedelta(days=2)
SECOND = timedelta(seconds=1)


class Windows:
    """A data folder or a bucket, its list, and a clock that the tests set."""

    def __init__(self, store: Store, kept_out: KeptOut) -> None:
        self.store = store
        self.kept_out = kept_out
        self.now = NOW
        self.raw = Raw(store, kept_out, lambda: self.now)

    def land(self, leads: Sequence[ReceivedLead], asked_at: datetime = CLOSED_AT) -> Landed:
        """Land the answer that held these leads."""
        body = hashlib.sha256(repr(leads).encode()).hexdigest()
        return self.raw.land(APPLICANT, WINDOW, leads, asked_at, body, "run-1")

    def push(self, *leads: ReceivedLead, at: datetime = LATER) -> Landed:
        return self.raw.add(PLACE, leads, at)

    @property
    def names(self) -> list[str]:
        """What lies in the window's folder."""
        return [key.removeprefix(PLACE.key) for key in self.store.list(PLACE.key)]

    @property
    def name(self) -> str:
        (name,) = self.names
        return name

    def rows(self) -> list[Row]:
        return merged(self.raw.read(PLACE).rows)

    def texts(self) -> dict[str, str]:
        """The message of each lead as it counts."""
        return {
            id_: json.loads(payload)["message"]
            for id_, payload in newest_payloads(self.rows()).items()
        }

    def footer(self) -> dict[bytes, bytes]:
        content = self.store.get(PLACE.key + self.name)
        assert content is not None
        metadata = pq.ParquetFile(io.BytesIO(content)).metadata.metadata
        assert metadata is not None
        return metadata

    def damage(self, name: str) -> None:
        content = bytearray(self.store.get(PLACE.key + name) or b"")
        content[len(content) // 2] ^= 1
        self.store.create(PLACE.key + name, bytes(content))


@pytest.fixture
def windows(tmp_path: Path) -> Windows:
    return Windows(FolderStore(tmp_path / "data"), KeptOut(tmp_path / "list"))


@pytest.fixture(params=["folder", "bucket"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Windows]:
    """The same in a folder and in a bucket."""
    kept_out = KeptOut(tmp_path / "list")
    if request.param == "folder":
        yield Windows(FolderStore(tmp_path / "data"), kept_out)
    else:
        address = new_bucket(request.getfixturevalue("moto"))
        yield Windows(open_store(address, plain_http=True), kept_out)


# --- landing --------------------------------------------------------------------------------------


def test_the_name_says_when_and_how_wholly_the_window_was_looked_at_and_how_many_leads_it_has(
    anywhere: Windows,
) -> None:
    anywhere.land(TWENTY)

    [key] = anywhere.store.list("raw/")
    digest = hashlib.sha256(anywhere.store.get(key) or b"").hexdigest()[:16]
    folder = "raw/applicant_leads/day=2026-11-19/scope=branch-101"
    assert key == f"{folder}/{microseconds(CLOSED_AT)}-closed-20-{digest}.parquet"


def test_a_row_is_a_version_of_a_lead_with_its_exact_text_and_the_moment_of_its_request(
    windows: Windows,
) -> None:
    odd = ReceivedLead("odd", '{"id":"odd","n":1e400,"big":' + "9" * 5000 + ',"nul":"\x00"}')

    windows.land([odd])

    assert windows.rows() == [Row("odd", microseconds(CLOSED_AT), odd.payload, PULL)]
    assert windows.footer()[b"run_id"] == b"run-1"


def test_a_window_that_was_whole_stays_whole(windows: Windows) -> None:
    windows.now = late = WINDOW.start + RETENTION + SECOND
    windows.land(TWENTY)
    windows.land(TWENTY[:3], late)
    assert windows.name.startswith(f"{microseconds(late)}-closed-20-")


def test_a_lead_that_the_answer_no_longer_holds_stays(windows: Windows) -> None:
    windows.land([lead(1), lead(2)])

    landed = windows.land([lead(1, "changed"), lead(3)], LATER)

    assert landed == Landed(leads=3, new=1, changed=1)
    assert windows.texts() == {"lead-01": "changed", "lead-02": "first", "lead-03": "first"}
    assert len(windows.names) == 1


def test_a_lead_that_comes_back_counts_from_then_and_its_earlier_texts_stay(
    windows: Windows,
) -> None:
    windows.land([lead(1, "A")], CLOSED_AT)
    windows.land([lead(1, "B")], CLOSED_AT + SECOND)
    windows.land([], CLOSED_AT + 2 * SECOND)
    windows.land([lead(1, "B")], CLOSED_AT + 3 * SECOND)
    windows.push(lead(1, "B"))

    assert windows.rows() == [
        Row("lead-01", microseconds(CLOSED_AT), lead(1, "A").payload, PULL),
        Row("lead-01", microseconds(CLOSED_AT + 3 * SECOND), lead(1, "B").payload, PULL),
    ]


def test_a_lead_that_was_pushed_after_the_request_is_not_gone(windows: Windows) -> None:
    windows.push(lead(1), at=CLOSED_AT + SECOND)
    windows.land([], CLOSED_AT)
    windows.land([lead(1)], LATER)
    assert [row.number for row in windows.rows()] == [microseconds(CLOSED_AT + SECOND)]


def test_an_erased_lead_is_not_named_among_those_that_the_answer_no_longer_held(
    windows: Windows,
) -> None:
    windows.land([lead(1), lead(2)])
    windows.land([], LATER)
    assert b"lead-01" in windows.footer()[b"gone"]

    windows.kept_out.keep_out("lead-01")
    windows.raw.rewrite(PLACE)

    assert windows.footer()[b"gone"] == b'["lead-02"]'


def test_the_same_answer_again_renames_the_file_and_writes_nothing(anywhere: Windows) -> None:
    anywhere.land(TWENTY, WINDOW.end - SECOND)
    before = anywhere.store.get(PLACE.key + anywhere.name)
    anywhere.raw.fail(PLACE, "busy (429)", is_permanent=False)
    assert anywhere.land(TWENTY, CLOSED_AT) == Landed(leads=20)
    assert anywhere.names == [anywhere.name]
    assert anywhere.name.startswith(f"{microseconds(CLOSED_AT)}-closed-20-")
    assert anywhere.store.get(PLACE.key + anywhere.name) == before


def test_the_same_answer_again_counts_over_a_push_that_came_between(windows: Windows) -> None:
    windows.land([lead(1)], CLOSED_AT)
    windows.push(lead(1, "pushed"), at=CLOSED_AT + SECOND)

    windows.land([lead(1)], LATER)

    assert windows.texts() == {"lead-01": "first"}


def test_a_push_that_came_while_an_answer_was_under_way_counts(windows: Windows) -> None:
    windows.push(lead(1, "pushed"), at=LATER)
    windows.land([lead(1, "asked before")], CLOSED_AT)
    assert windows.texts() == {"lead-01": "pushed"}
    # What the portal still says an hour later counts again.
    windows.land([lead(1, "asked before")], LATER + SECOND)
    assert windows.texts() == {"lead-01": "asked before"}


def test_an_older_answer_that_lands_later_adds_and_overwrites_nothing(windows: Windows) -> None:
    windows.land([lead(1, "newer")], LATER)
    windows.land([lead(1, "older"), lead(2)], CLOSED_AT)

    assert windows.texts() == {"lead-01": "newer", "lead-02": "first"}
    assert windows.name.startswith(f"{microseconds(LATER)}-closed-2-")
    assert len(windows.rows()) == 3


def test_two_landings_at_once_leave_two_files_and_the_next_merges_them(windows: Windows) -> None:
    for number in (1, 2):
        asked_at = CLOSED_AT + number * SECOND
        windows.raw.land(APPLICANT, WINDOW, [lead(number)], asked_at, "hash", "run", is_fresh=True)
    assert len(windows.names) == 2
    assert windows.texts() == {"lead-01": "first", "lead-02": "first"}

    windows.land([lead(3)], LATER)
    assert len(windows.names) == 1
    assert len(windows.texts()) == 3


def test_a_file_that_vanishes_while_the_folder_is_read_makes_it_be_read_again(
    tmp_path: Path,
) -> None:
    class Moving(FolderStore):
        """Another process lands while this one reads."""

        others: list[Callable[[], object]]

        def get(self, key: str) -> bytes | None:
            if self.others:
                self.others.pop()()
            return super().get(key)

    kept_out = KeptOut(tmp_path / "list")
    there = Windows(FolderStore(tmp_path / "data"), kept_out)
    there.land([lead(1)])
    store = Moving(tmp_path / "data")
    store.others = [
        lambda: there.land([lead(1)], LATER),
        lambda: there.land([lead(2)], LATER + SECOND),
    ]
    here = Windows(store, kept_out)
    here.land([lead(3)], LATER + 2 * SECOND)
    assert len(here.names) == 1
    assert here.texts().keys() == {"lead-01", "lead-02", "lead-03"}


def test_files_of_other_names_are_ignored(windows: Windows) -> None:
    windows.land(TWENTY)
    for name in ("leads.parquet", "1-closed-1-0123.parquet"):
        windows.store.create(PLACE.key + name, b"other")

    windows.land([lead(30)], LATER)

    assert len(windows.texts()) == 21
    assert len(windows.names) == 3


texts = st.sampled_from("ABC")
moments = st.integers(min_value=1, max_value=6)
sources = st.sampled_from([PULL, PUSH])  # corrections are no versions
rows = st.builds(Row, st.sampled_from(["1", "2"]), moments, texts, sources)
some_rows = st.lists(rows, max_size=6)


@settings(max_examples=40)
@given(some_rows, some_rows, some_rows)
def test_merging_loses_no_version_and_no_order_matters(
    one: list[Row], two: list[Row], three: list[Row]
) -> None:
    everything = merged([*one, *two, *three])
    assert everything == merged([*three, *one, *two]) == merged(everything)
    assert {(row.lead_id, row.payload) for row in everything} == {
        (row.lead_id, row.payload) for row in (*one, *two, *three)
    }
    newest = {row.lead_id: row.payload for row in sorted([*one, *two, *three])}
    assert newest_payloads(everything) == newest
    later = [(row.lead_id, row.payload) for row in everything]
    assert all(left != right for left, right in itertools.pairwise(later))


# --- pushes ---------------------------------------------------------------------------------------


def test_pushed_leads_lie_in_a_file_of_their_own_and_land_no_window(anywhere: Windows) -> None:
    anywhere.push(lead(1), lead(2))
    assert re.fullmatch(r"0{16}-rows-2-[0-9a-f]{16}\.parquet", anywhere.name)
    assert [row.source for row in anywhere.rows()] == ["push", "push"]
    (folder,) = list_folders(anywhere.store, "raw/", NOW).values()
    assert folder.newest is None


# --- clocks ---------------------------------------------------------------------------------------


def test_after_the_clock_was_set_back_what_is_received_later_counts(windows: Windows) -> None:
    windows.now = LATER
    windows.land([lead(1, "older")], LATER)
    windows.now = set_back = LATER - timedelta(days=365)
    windows.land([lead(1, "newer")], set_back)
    assert windows.texts() == {"lead-01": "newer"}
    windows.push(lead(1, "newest"), at=set_back + SECOND)
    assert windows.texts() == {"lead-01": "newest"}


# --- the suppression list -------------------------------------------------------------------------


def test_the_same_answer_is_filtered_again_once_the_list_has_grown(windows: Windows) -> None:
    windows.land(TWENTY)
    windows.kept_out.keep_out("lead-01")
    windows.land(TWENTY, LATER)
    assert "lead-01" not in windows.texts()


def test_the_hash_of_an_answer_is_not_kept_if_somebody_was_taken_out_of_it(
    windows: Windows,
) -> None:
    windows.kept_out.keep_out("lead-01")

    windows.land([lead(1), lead(2)])

    assert windows.footer()[b"body_hash"] == b""


@pytest.mark.parametrize("way", ["land", "the same again", "push", "fresh"])
def test_who_is_put_on_the_list_during_a_landing_is_out_when_it_returns(
    tmp_path: Path, way: str
) -> None:
    to_keep_out: list[str] = []

    def while_landing() -> None:
        while to_keep_out:
            kept_out.keep_out(to_keep_out.pop())

    class Renaming(FolderStore):
        def rename(self, key: str, new_key: str) -> bool:
            while_landing()
            return super().rename(key, new_key)

    kept_out: KeptOut = KeptOut(tmp_path / "list", while_landing)
    windows = Windows(Renaming(tmp_path / "data"), kept_out)
    if way != "fresh":
        windows.land(TWENTY)
    to_keep_out.append("lead-01")
    match way:
        case "land":
            windows.land([lead(1, "again"), lead(2)], LATER)
        case "the same again":
            windows.land(TWENTY, LATER)
        case "push":
            windows.push(lead(1, "again"))
        case "fresh":
            windows.raw.land(APPLICANT, WINDOW, TWENTY, CLOSED_AT, "hash", "run", is_fresh=True)
    assert kept_out.newest_entry == 1
    assert "lead-01" not in windows.texts()
    assert len(windows.texts()) == 19


# --- rewriting ------------------------------------------------------------------------------------


def test_an_erasure_rewrites_the_window_and_its_look_stays(anywhere: Windows) -> None:
    anywhere.land(TWENTY)
    anywhere.push(lead(1, "pushed"))

    anywhere.kept_out.keep_out("lead-01")
    assert anywhere.raw.rewrite(PLACE)

    assert anywhere.name.startswith(f"{microseconds(CLOSED_AT)}-closed-19-")
    assert anywhere.footer()[b"body_hash"] == b""


def test_an_erasure_of_somebody_else_leaves_the_window_as_it_is(anywhere: Windows) -> None:
    anywhere.land(TWENTY)
    before = anywhere.names

    anywhere.kept_out.keep_out("somebody else")

    assert not anywhere.raw.rewrite(PLACE)
    assert anywhere.names == before


def test_a_window_of_pushed_leads_alone_is_gone_with_its_last_lead(windows: Windows) -> None:
    windows.push(lead(1))
    windows.kept_out.keep_out("lead-01")
    assert windows.raw.rewrite(PLACE)
    assert windows.names == []


def test_what_lands_during_a_rewriting_is_changed_as_well(windows: Windows) -> None:
    def cut(rows: list[Row]) -> list[Row]:
        while pushes:
            windows.push(pushes.pop())
        return [row._replace(payload='{"message": "cut"}') for row in rows]

    pushes = [lead(30)]
    windows.land(TWENTY)
    assert windows.raw.rewrite(PLACE, cut)
    assert set(windows.texts().values()) == {"cut"}
    assert len(windows.texts()) == 21


# --- failures and damage --------------------------------------------------------------------------


def failure_in(windows: Windows) -> tuple[str, str, int] | None:
    folder = list_folders(windows.store, PLACE.key, windows.now).get(PLACE.key)
    failure = read_failure(windows.store, PLACE.key, folder) if folder else None
    return (failure.reason, failure.verdict, failure.attempts) if failure else None


def test_failures_count_until_a_whole_look(anywhere: Windows) -> None:
    anywhere.raw.fail(PLACE, "busy (429)", is_permanent=False)
    anywhere.now += SECOND
    refused = anywhere.raw.fail(PLACE, "refused (403)", is_permanent=True)
    assert refused.first_failed_at == NOW
    anywhere.push(lead(1))
    assert failure_in(anywhere) == ("refused (403)", "refused", 2)

    anywhere.land(TWENTY)
    assert failure_in(anywhere) is None


def test_a_damaged_file_alone_is_set_aside_and_its_window_asked_for_again(
    anywhere: Windows,
) -> None:
    anywhere.land(TWENTY)
    anywhere.push(lead(30))
    pushed, answered = anywhere.names
    assert "closed" in answered

    anywhere.damage(answered)

    assert anywhere.texts().keys() == {"lead-30"}
    assert anywhere.names == [pushed, "_failed.json"]
    [aside] = anywhere.store.list("quarantine/")
    assert aside.startswith(f"quarantine/{PLACE.key}{answered}.")
    assert failure_in(anywhere) == ("damaged file", "temporary", 0)


def test_the_same_answer_again_does_not_rename_a_damaged_file(windows: Windows) -> None:
    windows.land(TWENTY)
    windows.damage(windows.name)

    windows.land(TWENTY, LATER)

    assert len(windows.texts()) == 20
    assert failure_in(windows) is None


def test_a_file_of_a_newer_version_is_left_alone(windows: Windows) -> None:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, pa.schema([("lead", pa.string())])) as writer:
        writer.add_key_value_metadata({"format": "4"})
    digest = hashlib.sha256(sink.getvalue()).hexdigest()[:16]
    windows.store.create(
        f"{PLACE.key}{microseconds(CLOSED_AT)}-closed-0-{digest}.parquet", sink.getvalue()
    )
    with pytest.raises(StorageError, match=r"format 4.*newer version"):
        windows.land(TWENTY, LATER)
    assert windows.store.list("quarantine/") == []


def test_a_disk_that_cannot_be_read_moves_nothing(tmp_path: Path) -> None:
    class Failing(FolderStore):
        def get(self, key: str) -> bytes | None:
            raise StorageError(f"{key} can't be read")

    kept_out = KeptOut(tmp_path / "list")
    there = Windows(FolderStore(tmp_path / "data"), kept_out)
    there.land(TWENTY)
    with pytest.raises(StorageError):
        Windows(Failing(tmp_path / "data"), kept_out).land(TWENTY, LATER)
    assert len(there.names) == 1


# --- other readers --------------------------------------------------------------------------------


def test_pandas_pyarrow_and_duckdb_read_the_folder_as_a_hive(
    windows: Windows, tmp_path: Path
) -> None:
    windows.land(TWENTY)
    windows.push(lead(30))
    windows.raw.fail(PLACE, "busy (429)", is_permanent=False)
    folder = str(tmp_path / "data/raw/applicant_leads")

    frame = pd.read_parquet(folder)
    assert sorted(frame.columns) == ["day", "lead_id", "number", "payload", "scope", "source"]
    assert len(frame) == 21
    assert ds.dataset(folder, partitioning="hive").to_table().num_rows == 21
    files = f"{folder}/**/*.parquet"
    select = "select distinct day, scope from read_parquet(?, hive_partitioning = true)"
    found = duckdb.execute(select, [files]).fetchall()
    assert found == [(DAY, "branch-101")]

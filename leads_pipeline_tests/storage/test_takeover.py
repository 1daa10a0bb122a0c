"""What the landed version left in raw/ is landed anew, once, with nothing lost.

`old_file` writes what that version wrote. A folder that it wrote itself is opened by promises/test_old_folder.py.
"""

import hashlib
import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.storage.landing import Raw
from leads_pipeline.storage.raw import place_of
from leads_pipeline.storage.rows import Row, merged, microseconds, newest_payloads
from leads_pipeline.storage.store import FolderStore, Store, open_store
from leads_pipeline.storage.takeover import take_over
from leads_pipeline_tests.support.buckets import new_bucket
from leads_pipeline_tests.support.keeping_out import KeptOut
from leads_pipeline_tests.support.sample_answers import CLOSED_AT, DAY, LATER, WINDOW, lead

PLACE = place_of(APPLICANT, WINDOW)
NOW = LATER + timedelta(days=1)

COLUMNS: dict[str, pa.DataType] = {
    "kind": pa.string(),
    "day": pa.date32(),
    "scope": pa.string(),
    "lead_id": pa.string(),
    "position": pa.int32(),
    "sequence": pa.int64(),
    "fetched_at": pa.timestamp("us", tz="UTC"),
    "run_id": pa.string(),
    "source": pa.string(),
    "payload": pa.string(),
    "oddity": pa.string(),
}
SCHEMA = pa.schema(COLUMNS)


def old_file(versions: Sequence[tuple[int, str, int]], source: str = "pull", **facts: str) -> bytes:
    """A file of the landed version. `versions`: number of the lead, its text, and the sequence."""
    rows: list[dict[str, Any]] = [
        {
            "kind": "applicant",
            "day": DAY,
            "scope": "branch-101",
            "lead_id": lead(number).lead_id,
            "position": position,
            "sequence": sequence,
            "fetched_at": CLOSED_AT,
            "run_id": "run-1",
            "source": source,
            "payload": lead(number, text).payload,
            "oddity": None,
        }
        for position, (number, text, sequence) in enumerate(versions)
    ]
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, SCHEMA, store_schema=False) as writer:
        writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
        writer.add_key_value_metadata({"schema_version": "2", "path": "…", **facts})
    content = sink.getvalue().to_pybytes()
    at = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    return content[:at] + hashlib.sha256(content).digest() + content[at:]


LOOK = {
    "window_start": WINDOW.start.isoformat(),
    "window_end": WINDOW.end.isoformat(),
    "looked_at": LATER.isoformat(),
    "fetched_at": CLOSED_AT.isoformat(),
    "run_id": "run-1",
    "body_sha256": "ab" * 32,
    "is_closed": "True",
    "is_partial": "False",
}


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "data")


@pytest.fixture
def kept_out(tmp_path: Path) -> KeptOut:
    return KeptOut(tmp_path / "list")


@pytest.fixture
def raw(store: Store, kept_out: KeptOut) -> Raw:
    return Raw(store, kept_out, lambda: NOW)


def texts(raw: Raw) -> dict[str, str]:
    rows = newest_payloads(merged(raw.read(PLACE).rows))
    return {id_.removeprefix("lead-"): json.loads(payload)["message"] for id_, payload in rows.items()}


def names(store: Store) -> list[str]:
    return [key.removeprefix(PLACE.key) for key in store.list(PLACE.key)]


def test_a_window_and_its_pushed_leads_become_one_file_with_its_look(store: FolderStore, raw: Raw) -> None:
    number = microseconds(CLOSED_AT)
    store.create(f"{PLACE.key}leads.parquet", old_file([(1, "B", 7), (1, "A", 9), (2, "A", number)], **LOOK))
    store.create(f"{PLACE.key}pushed.parquet", old_file([(1, "pushed", 8), (3, "pushed", 8)], "push"))
    take_over(store, raw)

    (name,) = names(store)
    assert name.startswith(f"{microseconds(LATER)}-closed-3-")
    assert texts(raw) == {"01": "A", "02": "A", "03": "pushed"}
    assert merged(raw.read(PLACE).rows) == [
        Row("lead-01", 7, lead(1, "B").payload, "pull"),
        Row("lead-01", 8, lead(1, "pushed").payload, "push"),
        Row("lead-01", 9, lead(1, "A").payload, "pull"),
        Row("lead-02", number, lead(2, "A").payload, "pull"),
        Row("lead-03", 8, lead(3, "pushed").payload, "push"),
    ]
    take_over(store, raw)
    assert names(store) == [name]


def test_of_versions_with_one_number_the_later_place_counts(store: FolderStore, raw: Raw) -> None:
    store.create(f"{PLACE.key}leads.parquet", old_file([(1, "z", 7), (2, "b", 7), (1, "a", 7)], **LOOK))
    take_over(store, raw)
    assert texts(raw) == {"01": "a", "02": "b"}


@pytest.mark.parametrize(
    ("is_closed", "is_partial", "state"), [("False", "False", "open"), ("True", "True", "partial")]
)
def test_how_whole_the_look_was_stays(
    store: FolderStore, raw: Raw, is_closed: str, is_partial: str, state: str
) -> None:
    facts = LOOK | {"is_closed": is_closed, "is_partial": is_partial}
    store.create(f"{PLACE.key}leads.parquet", old_file([(1, "A", 7)], **facts))
    take_over(store, raw)
    assert f"-{state}-1-" in names(store)[0]


def test_pushed_leads_alone_land_no_window(store: FolderStore, raw: Raw) -> None:
    store.create(f"{PLACE.key}pushed.parquet", old_file([(1, "pushed", 8)], "push"))
    take_over(store, raw)
    assert names(store)[0].startswith("0000000000000000-rows-1-")


def test_the_same_answer_as_before_is_known_and_renames_the_file(store: FolderStore, raw: Raw) -> None:
    store.create(f"{PLACE.key}leads.parquet", old_file([(1, "A", 7)], **LOOK))
    take_over(store, raw)
    (before,) = names(store)
    raw.land(APPLICANT, WINDOW, [lead(1, "A")], NOW, LOOK["body_sha256"], "run-2")
    assert names(store)[0].rpartition("-")[2] == before.rpartition("-")[2]


def test_who_is_on_the_list_is_not_taken_over(store: FolderStore, raw: Raw, kept_out: KeptOut) -> None:
    store.create(f"{PLACE.key}leads.parquet", old_file([(1, "A", 7), (2, "A", 7)], **LOOK))
    kept_out.keep_out("lead-01")
    take_over(store, raw)
    assert texts(raw) == {"02": "A"}


def test_an_anonymous_window_stays_known_as_one(store: FolderStore, raw: Raw) -> None:
    content = old_file([(1, "cut", 7)], personal_fields="anonymous", **LOOK)
    store.create(f"{PLACE.key}leads.parquet", content)
    take_over(store, raw)
    assert raw.read(PLACE).is_anonymous


def test_a_kill_in_between_loses_and_doubles_nothing(store: FolderStore, raw: Raw) -> None:
    content = old_file([(1, "B", 7), (1, "A", 9)], **LOOK)
    store.create(f"{PLACE.key}leads.parquet", content)
    take_over(store, raw)
    before = raw.read(PLACE).rows
    store.create(f"{PLACE.key}leads.parquet", content)  # as if the kill had come before it was deleted
    take_over(store, raw)
    assert raw.read(PLACE).rows == before
    assert len(names(store)) == 1


def test_a_damaged_old_file_is_set_aside_and_its_window_asked_for_again(store: FolderStore, raw: Raw) -> None:
    content = bytearray(old_file([(1, "A", 7)], **LOOK))
    content[len(content) // 2] ^= 1
    store.create(f"{PLACE.key}leads.parquet", bytes(content))
    take_over(store, raw)
    assert names(store) == ["_failed.json"]
    assert store.list("quarantine/") == [f"quarantine/{PLACE.key}leads.parquet.{NOW:%Y%m%dT%H%M%S.%fZ}"]


def test_the_objects_of_a_bucket_are_taken_over_but_for_those_that_another_stands_for(
    moto: str, monkeypatch: pytest.MonkeyPatch, kept_out: KeptOut
) -> None:
    store = open_store(new_bucket(moto, monkeypatch), plain_http=True)
    raw = Raw(store, kept_out, lambda: NOW)
    old, new = "0" * 32, "1" * 32
    store.create(f"{PLACE.key}leads-{old}.parquet", old_file([(1, "A", 7), (2, "erased", 7)], **LOOK))
    store.create(f"{PLACE.key}leads-{new}.parquet", old_file([(1, "A", 7)], replaces=old, **LOOK))
    take_over(store, raw)
    assert texts(raw) == {"01": "A"}
    assert len(names(store)) == 1

"""What pages print, compared with the leads that have landed.

Belongs here: the leads of the raw files, and tables as programs print them. Doesn't: running what a
page shows (test_blocks.py, test_tutorials.py).
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.names import list_places
from leads_pipeline.raw.store import FolderStore
from leads_pipeline_tests.support.portal_leads import Lead
from leads_pipeline_tests.support.staging import LONDON


@dataclass(frozen=True)
class RawRow:
    """A lead as one window holds it; one of midnight is in two."""

    kind: str
    scope: str
    day: date
    content: dict[str, Any]


def raw_rows(data: Path) -> Iterator[RawRow]:
    """The rows of all raw files."""
    for place in list_places(FolderStore(data)):
        for row in DataFolder.at(data).raw.read(place).rows:
            yield RawRow(place.kind.name, place.scope, place.day, json.loads(row.payload))


def landed_leads(data: Path) -> list[Lead]:
    """Each lead of the raw files once; the portal of these tests sends each in one version."""
    found = {}
    for row in raw_rows(data):
        lead = Lead.received(row.kind, row.scope, row.day, row.content, LONDON)
        found[row.kind, row.content["id"]] = lead
    return list(found.values())


def comparable(row: Iterable[Any]) -> tuple[Any, ...]:
    """A row to be compared with one that was printed."""
    found: list[Any] = []
    for cell in row:
        text = "" if cell is None else str(cell).strip()
        is_number = re.fullmatch(r"\d+(\.\d+)?(e[+-]?\d+)?", text)
        found.append(float(f"{float(text):.9g}") if is_number else text)
    return tuple(found)


def printed(output: str) -> list[tuple[Any, ...]]:
    """The lines of a table, as DuckDB, rich, pandas or polars print it."""
    found = []
    for line in map(str.strip, output.splitlines()):
        if not line:
            continue
        is_framed = "│" in line
        inner = line.removeprefix("│").removesuffix("│")
        found.append(comparable(re.split("[│┆]", inner) if is_framed else line.split()))
    return found

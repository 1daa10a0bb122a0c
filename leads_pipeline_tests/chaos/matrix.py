"""The faults that the pipeline must survive, by area: each is injected by a test, which counts its injections.

Belongs here: the list, and how a test says what it injected. Doesn't: the tests; conftest.py prints the counts.
"""

from collections import Counter
from typing import Final

from leads_pipeline_tests.chaos.system_calls import Fault

MATRIX: Final = {
    "answers": (
        "empty object",
        "null list",
        "204",
        "empty 200",
        "wrong type",
        "error object with 200",
        "HTML with 200",
        "redirect to another host",
        "cut off with Content-Length",
        "cut off without Content-Length",
        "reset in the middle",
        "cut off gzip",
        "gzip bomb",
        "200 MB body",
        "drip-fed body",
        "wrong charset",
        "duplicate keys",
        "NaN",
        "5,000-digit integer",
        "100,000-deep nesting",
        "lone surrogate",
        "NUL",
        "integers past 2^63",
        "one id twice with different content",
        "JSONTestSuite case",
    ),
    "busy": (
        "429 bare",
        "429 with seconds",
        "429 with a date",
        "429 with a past date",
        "429 with -1",
        "429 with 1.5",
        "429 with soon",
        "429 with 99999999999",
        "nginx limit_req",
    ),
    "identity": (
        "token server down",
        "token server slow",
        "token server wrong",
        "401 in the middle",
        "403 in the middle",
        "expiry in the middle",
        "16 processes racing",
        "corrupt token store",
        "unreadable token store",
        "foreign-owned token store",
        "clock jump",
        "clock skew",
    ),
    "storage": (
        *(
            f"{fault.value} at a system call of a {work}"
            for fault in Fault
            for work in ("landing", "staging", "publication")
        ),
        "disk full",
        "machine killed while landing in a store",
        "read-only folder",
        "two processes landing one window",
        "corrupt Parquet among good files",
        "empty Parquet among good files",
        "cut off Parquet among good files",
        "changed Parquet among good files",
        "reader holding the DuckDB file",
        "leftover write-ahead log",
        "data folder removed between steps",
    ),
    "time": (
        "lead at a midnight edge",
        "lead on a day of 23 hours",
        "lead on a day of 25 hours",
        "leap second",
        "moment without seconds",
        "year 1",
        "offset other than Z",
    ),
    "orchestration": (
        "daemon killed and restarted",
        "run worker killed",
        "two daemons",
        "duplicate tick",
        "locked sqlite",
        "code location that fails to load",
        "seeded history",
        "mishap in sixty days",
    ),
    "hostile content": (
        "HTML, SQL or formula text in a field",
        "naughty string",
        "path or control characters in an id",
        "field name with quotes",
        "10,000 unknown fields",
        "field names that collide in snake case",
        "field name that is a column of ours",
        "field name that is an SQL keyword",
    ),
}


class Injections:
    """What one test has injected so far."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def __call__(self, area: str, fault: str, times: int = 1) -> None:
        """Count a fault of the matrix that was really injected, not one that was prepared."""
        assert fault in MATRIX[area], f"{fault!r} is no row of the area {area!r}"
        self.counts[area, fault] += times


def rows(counts: Counter[tuple[str, str]]) -> list[tuple[str, str, int]]:
    """Area, fault and injections of every row of the matrix."""
    return [(area, fault, counts[area, fault]) for area, faults in MATRIX.items() for fault in faults]

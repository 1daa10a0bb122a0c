"""Makes what Dagster's processes print readable: one line a cause, and the address of the run.

Belongs here: the text of Dagster's log. Doesn't: its processes (serving.py). The Dagster UI has
every stack trace.
"""

import re
from collections.abc import Iterable, Iterator

from leads_pipeline.orchestration.dagster_compat import CANT_STORE, GOES_ON

# 2026-11-27 07:51:45 +0000 - dagster - ERROR - pull_leads - 35b3bab8-… - 31708 -
# raw_applicant_leads - STEP_FAILURE - …
_RECORD = re.compile(
    r"\d{4}-\d\d-\d\d (?P<time>\d\d:\d\d:\d\d) [+-]\d{4} - (?P<source>\S+ - [A-Z]+) - (?P<text>.*)"
)
_FAILURE = re.compile(
    r"(?P<job>\S+) - (?P<run>[0-9a-f-]{36}) - (?:\d+ - )?(?:(?P<step>\S+) - )?"
    r"(?P<event>STEP_FAILURE|RUN_FAILURE|RUN_CANCELED) - (?P<why>.*)"
)
# pull_leads - 35b3bab8-… - raw_applicant_leads - Cancelled. 8 windows …
_OF_STEP = re.compile(r"\S+ - [0-9a-f-]{36} - (?P<step>[^\s\d]\S*) - (?P<text>.*)")
_STACK_TRACE = ("Stack Trace:", "Traceback (most recent call last)")
_EXCEPTION = re.compile(r"dagster\._core\.[\w.]+: ")
_INTERRUPTED = "dagster._core.errors.DagsterExecutionInterruptedError"


def readable(lines: Iterable[str], pages: str) -> Iterator[str]:
    """Shorten the lines of a log. `pages` is the address of the Dagster UI.

    A failed step becomes its run's address and the lines of its error. A stack trace is left out.
    So is the failure of a run whose step has failed, as it repeats the step's, and the failure of a
    step whose run was cancelled. So is what runs say while all is well.
    """
    log = _Log(pages)
    for line in lines:
        yield from log.take(line)
    yield from log.finish()


class _Log:
    """A log that is read line by line."""

    def __init__(self, pages: str) -> None:
        self._pages = pages
        self._is_skipping = False
        # Shown once the next line has said why it failed.
        self._failed_step: str | None = None

    def take(self, line: str) -> Iterator[str]:
        """Return what is shown once this line has come."""
        if self._failed_step is not None and line:
            self._is_skipping = line == _INTERRUPTED
            if self._is_skipping:
                self._failed_step = None
            yield from self.finish()

        if record := _RECORD.fullmatch(line):
            yield from self._take_record(record)
        elif line.startswith(CANT_STORE):
            yield f"  Dagster can't store an event: {line.partition(': ')[2]}"
            self._is_skipping = True  # its SQL
        elif line.startswith((*_STACK_TRACE, GOES_ON)):
            self._is_skipping = True
        elif line and not self._is_skipping:
            yield f"  {_EXCEPTION.sub('', line, count=1)}"

    def finish(self) -> Iterator[str]:
        """Return what is left to show."""
        if self._failed_step is not None:
            yield self._failed_step
        self._failed_step = None

    def _take_record(self, record: re.Match[str]) -> Iterator[str]:
        shown = _shown(record, self._pages)
        failure = _FAILURE.fullmatch(record["text"])
        # The error of an interrupted run is Dagster's own.
        self._is_skipping = shown is None or (failure is not None and _is_interrupted(failure))
        if failure is not None and failure["event"] == "STEP_FAILURE":
            self._failed_step = shown
        elif shown is not None:
            yield shown


def _shown(record: re.Match[str], pages: str) -> str | None:
    """Return the record as one line, None if it isn't shown."""
    if record["source"] == "dagster - INFO":
        return None

    text = record["text"]
    if failure := _FAILURE.fullmatch(text):
        if failure["event"] == "RUN_FAILURE" and "Steps failed" in failure["why"]:
            return None
        text = f"{failure['step'] or failure['job']} {_how(failure)}: {pages}/runs/{failure['run']}"
    elif of_step := _OF_STEP.fullmatch(text):
        text = f"{of_step['step']}: {of_step['text']}"

    return f"{record['time']} {text}"


def _how(failure: re.Match[str]) -> str:
    if failure["event"] == "RUN_CANCELED":
        return "was cancelled"
    return "was interrupted" if _is_interrupted(failure) else "failed"


def _is_interrupted(failure: re.Match[str]) -> bool:
    return (
        failure["event"] == "RUN_CANCELED"
        or "Execution was interrupted unexpectedly" in failure["why"]
    )

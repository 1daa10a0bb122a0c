"""Makes what Dagster's processes print readable: one line a cause, and the address of the run.

Belongs here: the text of Dagster's log. Doesn't: its processes (serving.py). The Dagster UI has every stack trace.
"""

import re
from collections.abc import Iterable, Iterator

# 2026-11-27 07:51:45 +0000 - dagster - ERROR - pull_leads - 35b3bab8-… - 31708 - raw_applicant_leads - STEP_FAILURE - …
_RECORD = re.compile(r"\d{4}-\d\d-\d\d (?P<time>\d\d:\d\d:\d\d) [+-]\d{4} - (?P<source>\S+ - [A-Z]+) - (?P<text>.*)")
_FAILURE = re.compile(
    r"(?P<job>\S+) - (?P<run>[0-9a-f-]{36}) - (?:\d+ - )?(?:(?P<step>\S+) - )?(?P<event>STEP|RUN)_FAILURE - (?P<why>.*)"
)
_STACK_TRACE = ("Stack Trace:", "Traceback (most recent call last)")
_EXCEPTION = re.compile(r"dagster\._core\.[\w.]+: ")


def readable(lines: Iterable[str], pages: str) -> Iterator[str]:
    """Shorten the lines of a log. `pages` is the address of the Dagster UI.

    A failed step becomes its run's address and the lines of its error. A stack trace is left out. So is the failure of
    a run whose step has failed: it repeats the step's. So is what runs say while all is well.
    """
    is_skipped = False
    for line in lines:
        if record := _RECORD.fullmatch(line):
            time, text = record["time"], record["text"]
            failure = _FAILURE.fullmatch(text)
            is_skipped = failure is not None and failure["event"] == "RUN" and "Steps failed" in failure["why"]
            is_skipped = is_skipped or record["source"] == "dagster - INFO"
            if failure and not is_skipped:
                text = f"{failure['step'] or failure['job']} failed: {pages}/runs/{failure['run']}"
            if not is_skipped:
                yield f"{time} {text}"
        elif line.startswith(_STACK_TRACE):
            is_skipped = True
        elif line and not is_skipped:
            yield f"  {_EXCEPTION.sub('', line, count=1)}"

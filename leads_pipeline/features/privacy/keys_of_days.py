"""The keys of days that retention is making anonymous. They lie in `.state/`.

Under its key, the people of a day become the same random ids in each of its files.
"""

import secrets
from datetime import date
from pathlib import Path

from leads_pipeline.raw.durable import reading, replace_file, storing
from leads_pipeline.raw.state import State


def make_key_of_day(state: State, day: date) -> bytes:
    """Return the key under which a day's people become random ids. It outlives a kill."""
    path = _path(state, day)
    with storing(path):
        if not path.exists():
            replace_file(path, secrets.token_bytes(32))
        return path.read_bytes()


def key_of_day(state: State, day: date) -> bytes | None:
    """Return the key of the day, None if retention hasn't come to it.

    If there is none, not yet or not any more, return a new one each time.
    """
    before = state.anonymous_before()
    if before is None or day >= before:
        return None

    path = _path(state, day)
    with reading(path):
        return path.read_bytes() if path.exists() else secrets.token_bytes(32)


def forget_key_of_day(state: State, day: date) -> None:
    """Delete it. From then on, nobody can tell whose id it was."""
    _path(state, day).unlink(missing_ok=True)


def _path(state: State, day: date) -> Path:
    return state.path / "anonymous" / day.isoformat()

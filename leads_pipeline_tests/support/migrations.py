"""Dagster's migrations, read once a process.

Dagster has Alembic read its hundred migrations for every database that it opens, each run's among
them. That is a fifth of the CPU time of such a test (measured). They stay the same, so one reading
is enough.
"""

from alembic.config import Config
from alembic.script import ScriptDirectory

_read = ScriptDirectory.from_config
_migrations: dict[str, ScriptDirectory] = {}


def _read_once(config: Config) -> ScriptDirectory:
    place = str(config.get_main_option("script_location"))
    if place not in _migrations:
        _migrations[place] = _read(config)
    return _migrations[place]


def read_migrations_once() -> None:
    """Have this process read them once."""
    ScriptDirectory.from_config = _read_once  # type: ignore[method-assign]

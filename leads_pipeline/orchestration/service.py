"""What the data folder remembers of the service: its start, its Dagster home, and what is off.

Belongs here: noting it, in ticks of the daemon. Doesn't: starting the service (features/service/),
findings.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from dagster import DagsterInstance

from leads_pipeline.extensions import brought
from leads_pipeline.orchestration.names import NEEDED, Names
from leads_pipeline.raw.durable import replace_file
from leads_pipeline.raw.state import State
from leads_pipeline.settings import Settings

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


def note_start(state: Path, daemon: str, now: datetime) -> None:
    """Remember when the daemon with this id was first seen."""
    if _started(state)[1] != daemon:
        replace_file(state / "started", f"{now.isoformat()} {daemon}".encode())


def note_home(instance: DagsterInstance, state: State, names: Names) -> None:
    """Remember which Dagster home the service works with.

    A home without a dagster.yaml lasts as long as its process, and isn't noted.
    """
    home = Path(instance.root_directory)
    if (home / "dagster.yaml").is_file():
        state.note_dagster_home(home, "/".join(names.prefix))


def note_service(
    instance: DagsterInstance, settings: Settings, state: State, now: datetime, names: Names
) -> None:
    """Note that the daemon works, and which of the needed schedules and sensors are off.

    More than one sensor does it, so that each is noted if it is off. `status` reads it in the data
    folder and needs no Dagster. Raises StorageError.
    """
    is_running = {one.instigator_name: one.is_running for one in instance.all_instigator_state()}
    state.note_service(
        now,
        sorted(
            name for name in _needed(settings, names) if not is_running.get(name, names.is_served)
        ),
    )


def _needed(settings: Settings, names: Names) -> list[str]:
    """The names of the schedules and sensors without which something would be late."""
    needed = [*NEEDED]
    for of_feature in brought("needed"):
        needed += of_feature(settings)
    return [names.name(name) for name in needed]


def started_at(state: Path, now: datetime) -> datetime:
    """Return when the service was last started, or long ago if nobody knows.

    If the clock ran ahead then, nobody knows.
    """
    moment, _ = _started(state)
    return moment if moment <= now else _LONG_AGO


def _started(state: Path) -> tuple[datetime, str]:
    try:
        moment, _, daemon = (state / "started").read_text().partition(" ")
        return datetime.fromisoformat(moment), daemon
    except (OSError, ValueError):
        return _LONG_AGO, ""

"""Names of Dagster that it doesn't document, as the service needs them, each with its reason.

If a release moves one, it is mended here.
"""

import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

from dagster import DagsterInstance

from leads_pipeline.errors import BugError

# The daemon has no public module to run.
DAEMON_MODULE = "dagster._daemon"

_TICKED_AT = ("last_tick_timestamp", "last_tick_start_timestamp", "last_iteration_timestamp")


def forget_future_ticks(instance: DagsterInstance, now: datetime) -> None:
    """Have sensors and schedules tick again that ticked while the clock ran ahead.

    Dagster would wait until the clock is there again. A schedule's history of ticks is lost. Raises
    BugError if there are such ticks, and this Dagster has moved the names that are needed to forget
    them.
    """
    moment = now.timestamp()
    for state in instance.all_instigator_state():
        ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)
        moments = [tick.timestamp for tick in ticks]
        moments += [getattr(state.instigator_data, name, None) or 0.0 for name in _TICKED_AT]
        last = max(moments)
        if last > moment:
            _forget_ticks(instance, state, last, moment)


def _forget_ticks(instance: DagsterInstance, state: Any, last: float, moment: float) -> None:
    try:
        # The notes by which Dagster decides when a sensor or a schedule ticks next.
        from dagster._core.scheduler.instigation import ScheduleInstigatorData, SensorInstigatorData
    except ImportError:
        raise BugError(
            f"{state.instigator_name} ticked while the clock ran ahead, so it would wait until "
            "that time comes. This version of Dagster offers no way to forget that. Install an "
            "older version of Dagster, or move Dagster's home, .dagster in the data folder, "
            "aside. Its history of runs goes with it, and no lead."
        ) from None

    data = state.instigator_data
    if isinstance(data, SensorInstigatorData):
        forgotten = data._replace(last_tick_timestamp=None, last_tick_start_timestamp=None)
        instance.update_instigator_state(state.with_data(forgotten))
    elif isinstance(data, ScheduleInstigatorData):
        instance.purge_ticks(state.instigator_origin_id, state.selector_id, before=last + 1)
        # A day earlier, so that the tick that was due meanwhile is made up for.
        begun = data._replace(start_timestamp=moment - 86_400, last_iteration_timestamp=None)
        instance.update_instigator_state(state.with_data(begun))


def run_webserver(
    host: str, port: int, workspace: str, log_level: str, serve: Callable[..., None]
) -> None:
    """Run Dagster's web server, and have `serve` serve its ASGI application.

    `serve` gets uvicorn's options by name. Dagster has no public way to wrap the application. Its
    command ends with a call of `uvicorn.run`. Raises BugError if the command has ended without that
    call.
    """
    import uvicorn
    from dagster_webserver.cli import main  # loads GraphQL's schema, which no other process needs

    is_reached = False

    def run(app: Any, **options: Any) -> None:
        nonlocal is_reached
        is_reached = True
        serve(app, **options)

    uvicorn.run = run
    where = ("--host", host, "--port", str(port), "--workspace", workspace)
    sys.argv = ["dagster-webserver", *where, "--dagster-log-level", log_level]

    try:
        main()  # type: ignore[no-untyped-call]
    except SystemExit:
        if is_reached:
            raise

    if not is_reached:
        raise BugError(
            "Dagster's web server didn't call uvicorn.run, so its pages were not served: nothing "
            "would keep other websites from them. Install an older version of Dagster."
        )

"""What is wrong, or worth knowing, at this moment: one list for commands, Dagster's checks, alerts and metrics.

Belongs here: the finders, a function each, but for those of windows (window_findings.py), of deliveries
(delivery_findings.py) and of settings (setting_findings.py). A finder's docstring is its entry in the runbook: a title,
then Meaning, Do and Over. Doesn't: the facts (known.py), who is told (alerts.py).

An error needs a person now: leads are late, unreadable or lost, or soon will be. A warning becomes an error if nobody
acts. Things that were never set up are a hint with the simulator, and a warning with a real portal.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from leads_pipeline.domain.answer import shown_member
from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.observe import delivery_findings, setting_findings, window_findings
from leads_pipeline.observe.finding import (
    FINDERS,
    LEADS_DUCKDB,
    Finding,
    Found,
    Level,
    acknowledge,
    counted,
    find,
    finder,
    look,
    never_set_up,
    some,
)
from leads_pipeline.observe.known import SILENCE, Known
from leads_pipeline.observe.told import Told
from leads_pipeline.storage.landing import members_beside
from leads_pipeline.storage.publications import NOTING
from leads_pipeline.storage.windows import list_days
from leads_pipeline.transform.checks import checks, problems
from leads_pipeline.transform.duck import WAREHOUSE_FILE, literal, quoted

__all__ = [
    "FINDERS",
    "Finding",
    "Level",
    "acknowledge",
    "delivery_findings",
    "find",
    "look",
    "setting_findings",
    "window_findings",
]

_UNPUBLISHED: Final = timedelta(hours=1)
_TWO_NIGHTS: Final = timedelta(days=2)
# One is due each night. Once a year, a night comes 25 hours after the one before.
_OLDEST_INVENTORY: Final = timedelta(hours=27)

# A nightly one may fail once.
_OLDEST_BACKUP: Final = timedelta(days=2)

_MANY_EMPTIED: Final = 0.05

_WARNING_BYTES: Final = 1_000_000_000
_ERROR_BYTES: Final = 100_000_000


# --- leads.duckdb and the files ---------------------------------------------------------------------------------------


@finder(LEADS_DUCKDB)
def leads_duckdb(known: Known) -> Iterator[Found]:
    """leads.duckdb is missing, damaged or not up to date.

    Meaning: nobody can query it, or analysts see old figures. A new one is made from raw files. Leads whose raw file is
    lost come from the version before.
    Do: nothing for a few minutes if the service runs. Then see the last run of `publish` in the Dagster UI, or run
    `leads-pipeline backfill --last 1d`: it publishes, or prints why it can't. Mostly the disk is full.
    Over: when a publication succeeds.
    """
    state, now = known.publications, known.now
    failures = state.failures - known.data.state.is_held(NOTING)
    landed_at, published_at = known.data.state.landed_at(), state.published_at
    publish = "Run `leads-pipeline backfill --last 1d`: it publishes, or prints why it can't."
    if known.is_served:
        publish = "See the last run of `publish` in the Dagster UI, and that the sensor `publish_changes` is on."
    if trouble := known.leads_duckdb_trouble:
        is_renewed = known.is_served and failures <= 0
        yield Found(
            Level.ERROR,
            f"{trouble} A new one is made from raw files.",
            "Nothing: the service publishes a new one within a minute. If it happens again, check the disk."
            if is_renewed
            else publish,
        )
    elif failures > 0:
        yield Found(
            Level.ERROR,
            f"Publishing leads.duckdb failed {counted(failures, 'time')} in a row. Newer leads wait in raw.",
            publish,
            published_at or landed_at,
            may_pass=True,
        )
    elif (
        landed_at
        and now - max(landed_at, state.next_at() or landed_at) > _UNPUBLISHED
        and (published_at is None or landed_at > published_at)
    ):
        yield Found(
            Level.ERROR, f"Leads that landed on {landed_at:%Y-%m-%d %H:%M} UTC are not published.", publish, landed_at
        )
    elif known.is_served and published_at and now - published_at > _TWO_NIGHTS:  # another machine may have landed leads
        message = f"Nothing was published since {published_at:%Y-%m-%d %H:%M} UTC. The service does that each night."
        yield Found(Level.ERROR, message, publish, published_at, may_pass=True)


@finder("checks")
def check_tables(known: Known) -> Iterator[Found]:
    """A check on the tables of leads.duckdb fails.

    Meaning: the tables are published, and something in them is unusual. The message says what.
    Do: what the finding says. Nothing is lost and nothing is held back.
    Over: when the check passes after a publication.
    """
    for check in checks() if known.has_published else ():
        if check.what_to_do and (found := problems(known, check)):
            yield Found(
                Level.ERROR if check.is_error else Level.WARNING,
                f"{check.table}: this doesn't hold: {check.description}. Found: {some(found)}.",
                check.what_to_do,
                part=f"{check.name}/{check.table}",
            )


@finder("drift", stays=True)
def drift(known: Known) -> Iterator[Found]:
    """The portal sends something that the contract doesn't know.

    Meaning: a new field, a new value, or a value of another type, from at least three people. Or a new member beside
    the list of leads: the portal may begin to answer in pages. No lead is lost by it. Raw has all of it, and `_extra`
    shows new fields. A name that could be a person's is shown as `…`.
    Do: nothing now. If it is beside the list, ask the portal's technical contact. `CONTRIBUTING.md` says how a field
    gets a column. `leads-pipeline acknowledge KEY` hides it.
    Over: when the contract knows it, when it didn't come for 60 days, or when a person acknowledges it.
    """
    for kind in LEAD_KINDS:
        folders = list_days(known.data.store, kind, [known.today - timedelta(days=1), known.today], known.now)
        members = members_beside(known.data.store, folders.values())
        for name, type_ in sorted({(shown_member(name), type_) for name, type_ in members.items()}):
            yield Found(
                Level.WARNING,
                f"The portal's answers with {kind.name} leads have a new member beside the list: {name} ({type_}). "
                "The portal may begin to answer in pages.",
                "Ask the portal's technical contact what it means. Then hide it: `leads-pipeline acknowledge drift`.",
                part=f"{kind.name}/{name}/{type_}",
            )
    rows = "select kind, change, field, value, first_seen_day, leads from drift"
    for kind, change, field, value, day, leads in known.rows(rows):
        what = f"{field} = {value}" if value is not None else field
        yield Found(
            Level.WARNING,
            f"The portal sends a {change}: {what}, in {counted(leads, f'{kind} lead')} since {day}. None is lost.",
            "Nothing now. CONTRIBUTING.md says how it gets a column. Hide it: `leads-pipeline acknowledge drift`.",
            part=f"{kind}/{what}",
        )


@finder("contacts-emptied", stays=True)
def contacts_emptied(known: Known) -> Iterator[Found]:
    """The portal emptied contacts of leads that it had sent with them.

    Meaning: the newest version of a lead counts, so its name, address or number is gone from leads.duckdb. Raw keeps
    the earlier versions. More than a few leads of a day may be a mistake of the portal.
    Do: ask the portal if it meant to. `docs/guides/ask-the-data.md` has the query for earlier versions. Then hide it
    with `leads-pipeline acknowledge KEY`.
    Over: when the contacts are back, or when a person acknowledges it.
    """
    for kind in LEAD_KINDS:
        emptied = f"from pipeline.emptied_contacts where kind = {literal(kind.name)}"
        days = known.rows(
            f"select window_day, count(*), count(*) filter (where lead_id in (select lead_id {emptied})) "  # noqa: S608 - our own names
            f"from {quoted(kind.table)} where window_day in (select window_day {emptied}) group by all order by all",
            table="emptied_contacts",
        )
        for day, leads, without in days:
            yield Found(
                Level.ERROR if without >= _MANY_EMPTIED * leads else Level.WARNING,
                f"The portal emptied the contact of {without} of {leads} {kind.name} leads of {day}: a name, address "
                "or number that it had sent before. Raw keeps the earlier versions.",
                "Ask the portal if it meant to. docs/guides/ask-the-data.md has the query for earlier versions. Then "
                "hide it: `leads-pipeline acknowledge contacts-emptied`.",
                part=f"{kind.name}/{day}",
            )


@finder("inventory")
def inventory(known: Known) -> Iterator[Found]:
    """Today's inventory was not pulled.

    Meaning: a day's inventory can be pulled on that day alone. Without a pull, listings of this day stay unknown.
    Do: see what the last run of `pull_inventory` says in the Dagster UI. `leads-pipeline backfill --last 1d --kind
    inventory` pulls it now.
    Over: when a search succeeds.
    """
    searched_at = known.data.inventory.searched_at()
    if searched_at and not known.settings.no_inventory and known.now - searched_at > _OLDEST_INVENTORY:
        yield Found(
            Level.WARNING,
            f"The last inventory is from {searched_at:%Y-%m-%d %H:%M} UTC. The portal has today's until midnight only.",
            "Run `leads-pipeline backfill --last 1d --kind inventory`: it pulls the inventory, or prints why it can't.",
            searched_at,
        )


@finder("spool")
def spool(known: Known) -> Iterator[Found]:
    """Pushed leads of an earlier version wait in spool/.

    Meaning: this version couldn't read them when it took over. The portal doesn't send them again.
    Do: start the earlier version once: it lands the leads that it can read. Keep a copy of the files that stay, and ask
    the portal for their leads. Then delete them.
    Over: when `spool/` has no file `*.pushed`.
    """
    if waiting := [*(known.data.folder / "spool").glob("*.pushed")]:
        yield Found(
            Level.ERROR,
            f"{counted(len(waiting), 'file')} with pushed leads of an earlier version can't be read: in "
            f"{known.data.folder}/spool.",
            "Start the earlier version once: it lands the leads that it can read. Keep a copy of the files that "
            "stay, and ask the portal for their leads. Then delete them.",
        )


# --- the machine and the service --------------------------------------------------------------------------------------


@finder("disk")
def disk(known: Known) -> Iterator[Found]:
    """The disk of the data folder is nearly full.

    Meaning: a publication needs room for a second leads.duckdb, an erasure for two. On a full disk nothing lands and
    nothing is published. When there is room, the service goes on by itself.
    Do: delete old backups on this disk, or move the data folder to a larger one. `LEADS_TABLES=none` saves the room of
    `tables/`. Never delete `raw/`, `privacy/`, `.state/` or `restricted/`.
    Over: when there is room again.
    """
    file = known.data.folder / WAREHOUSE_FILE
    size, free = file.stat().st_size if file.exists() else 0, known.free_bytes
    if free < _WARNING_BYTES + 2 * size:
        is_error = free < _ERROR_BYTES + size
        yield Found(
            Level.ERROR if is_error else Level.WARNING,
            f"{free / 1e9:.1f} GB are free on the disk of {known.data.folder}. Publishing leads.duckdb needs up "
            f"to {(size + _ERROR_BYTES) / 1e9:.1f} GB{', so it may fail' if is_error else ', an erasure twice that'}.",
            "Delete old backups on this disk, or move the data folder. Never delete raw/, privacy/ or .state/.",
        )


@finder("backup")
def backup(known: Known) -> Iterator[Found]:
    """There is no backup of the last two days.

    Meaning: leads that the portal has deleted exist only on this disk.
    Do: run `leads-pipeline backup TARGET` each night. If you do, see what it prints.
    Over: when a backup was made.
    """
    made_at = known.data.state.last_backup()
    if made_at is None and known.data.bucket is None:
        yield Found(
            never_set_up(known),
            "No backup yet. Leads that the portal has deleted exist only on this disk.",
            "Run `leads-pipeline backup TARGET` each night. TARGET is a folder on another disk, such as /mnt/backup.",
        )
    elif made_at and known.now - made_at > _OLDEST_BACKUP:
        yield Found(
            Level.WARNING,
            f"The last backup is from {made_at:%Y-%m-%d %H:%M} UTC. Once the portal deletes newer leads, they exist "
            "only on this disk.",
            "Run `leads-pipeline backup TARGET`, and see why it doesn't run each night.",
            made_at,
        )


@finder("alert-channels")
def alert_channels(known: Known) -> Iterator[Found]:
    """Nobody is told of problems, or a channel doesn't work.

    Meaning: without a channel, only people who look see problems. Without a heartbeat, nobody notices that this machine
    is off. A channel that doesn't work is told on the others.
    Do: set `LEADS_ALERT_EMAIL` and `LEADS_SMTP_URL`, or a webhook, and `LEADS_HEARTBEAT_URL`. Then run
    `leads-pipeline alert --test`.
    Over: when both are set, and a message or a test has got through.
    """
    # Loaded here, as most findings need no HTTP.
    from leads_pipeline.observe.channels import SET_UP, channels_of

    for variable, failure in Told.read(known.data.state.path).failures.items():
        yield Found(
            Level.ERROR,
            f"Messages don't get through on {variable}. {failure.message}",
            "Run `leads-pipeline alert --test` to try it again.",
            since=failure.since,
            part=variable,
            may_pass=True,
        )
    if not channels_of(known.settings):
        yield Found(
            never_set_up(known),
            "No alert channel is set up, so nobody is told of problems.",
            f"{SET_UP} Then run `leads-pipeline alert --test`.",
        )
    elif not known.settings.heartbeat_url:
        yield Found(
            Level.HINT,
            "LEADS_HEARTBEAT_URL isn't set. Alerts stop when this machine stops, and nobody notices.",
            "Set LEADS_HEARTBEAT_URL to the address of an outside monitor.",
        )


@finder("service")
def service(known: Known) -> Iterator[Found]:
    """The service gives no sign of life, or a schedule or sensor is off.

    Meaning: the service doesn't run, its daemon hangs, or the sensor `alert` is off: then nobody is alerted. Or the
    schedule or sensor that the message names is off, and does nothing.
    Do: start the service: `leads-pipeline serve`, or `systemctl restart leads-pipeline`. If it runs, switch the
    schedule or sensor on in the Dagster UI, under Automation.
    Over: within five minutes. A service that is stopped by ctrl-C, SIGTERM or `systemctl stop` is no finding.
    """
    seen_at, stopped = known.service or (known.now, [])
    if known.now - seen_at > SILENCE:
        yield Found(
            Level.ERROR,
            f"The service gave no sign of life since {seen_at:%Y-%m-%d %H:%M} UTC. Nothing is pulled or published.",
            "Start it: `leads-pipeline serve`, or `systemctl restart leads-pipeline`. If it runs, switch the sensor "
            "`alert` on in the Dagster UI.",
            seen_at,
        )
    for name in stopped:
        if name != "pull_inventory_daily" or not known.settings.no_inventory:
            yield Found(
                Level.ERROR,
                f"{name} is off in the Dagster UI, and the pipeline needs it.",
                f"Switch {name} on in the Dagster UI, under Automation.",
                part=name,
            )

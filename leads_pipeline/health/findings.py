"""The problems and hints of this moment: one list for commands, checks, alerts and metrics.

Belongs here: the finders, a function each, but for those of windows (window_findings.py). A
finder's docstring is its entry in the runbook: a title, then Meaning, Do and Over. Doesn't: the
facts (facts.py), who is told (alerts.py).

An error needs a person now: leads are late, unreadable or lost, or soon will be. A warning becomes
an error if nobody acts. Things that were never set up are a hint with the simulator, and a warning
with a real portal.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from leads_pipeline.domain.bodies import is_of_paging
from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.domain.moments import has_passed
from leads_pipeline.errors import BugError, SettingsError
from leads_pipeline.health import window_findings
from leads_pipeline.health.facts import SILENCE, Facts
from leads_pipeline.health.finding import (
    LEADS_DUCKDB,
    Finding,
    Level,
    acknowledge,
    find,
    find_all,
    finder,
    never_set_up,
)
from leads_pipeline.raw.branches import read_branches
from leads_pipeline.raw.publications import NOTING
from leads_pipeline.raw.starting import how_to_publish, name_in_dagster
from leads_pipeline.raw.state import ServiceNote
from leads_pipeline.warehouse.checks import checks, problems
from leads_pipeline.warehouse.drift import NEW_MEMBER
from leads_pipeline.warehouse.duck import WAREHOUSE_FILE, literal, quoted
from leads_pipeline.words import counted, moment, some

__all__ = [
    "Finding",
    "Level",
    "acknowledge",
    "find",
    "find_all",
    "window_findings",
]

# The finding about the checks of sql/checks/.
CHECKS: Final = "checks"

_UNPUBLISHED: Final = timedelta(hours=1)
# One is due each night. Once a year, a night comes 25 hours after the one before.
_TWO_NIGHTS: Final = timedelta(days=2)
_MANY_EMPTIED: Final = 0.05

_WARNING_BYTES: Final = 1_000_000_000
_ERROR_BYTES: Final = 100_000_000


# --- leads.duckdb and the files -------------------------------------------------------------------


@finder(LEADS_DUCKDB)
def leads_duckdb(facts: Facts) -> Iterator[Finding]:
    """leads.duckdb is missing, damaged or not up to date.

    Meaning: nobody can query it, or analysts see old figures. A new one is made from raw files.
    Leads whose raw file is lost come from the version before. A publication counts as failed, too,
    if what is made from leads.duckdb is as before, for example data/tables.
    Do: nothing for a few minutes if the service runs. Then see the last run of `publish` in the
    Dagster UI, or run `leads-pipeline backfill --last 1d`: it publishes, or prints why it can't.
    Mostly the disk is full.
    Over: when a publication succeeds.
    """
    state = facts.publications
    now = facts.now
    failures = state.failures
    if facts.data.state.is_held(NOTING):  # the publication under way counts as failed until its end
        failures -= 1
    landed_at = facts.data.state.landed_at()
    published_at = state.published_at

    publish = f"{how_to_publish(facts.data.state)}: it publishes, or says why it can't."

    if facts.is_served:
        job, sensor = (
            name_in_dagster(facts.data.state, name) for name in ("publish", "publish_changes")
        )
        publish = (
            f"See the last run of `{job}` in the Dagster UI, and that the sensor `{sensor}` is on."
        )

    if trouble := facts.leads_duckdb.trouble:
        is_renewed = facts.is_served and failures <= 0
        yield Finding(
            Level.ERROR,
            f"{trouble} A new one is made from raw files.",
            "Nothing: the service publishes a new one within a minute. If it happens again, check "
            "the disk."
            if is_renewed
            else publish,
        )
    elif failures > 0:
        yield Finding(
            Level.ERROR,
            f"Publishing failed {counted(failures, 'time')} in a row. Newer leads may wait in raw, "
            "or what is made from leads.duckdb is as before.",
            publish,
            published_at or landed_at,
            may_pass=True,
        )
    elif (
        landed_at
        and now - max(landed_at, state.next_at() or landed_at) > _UNPUBLISHED
        and (published_at is None or landed_at > published_at)
    ):
        yield Finding(
            Level.ERROR,
            f"Leads that landed on {moment(landed_at)} are not published.",
            publish,
            landed_at,
        )
    elif facts.is_served and published_at and has_passed(_TWO_NIGHTS, published_at, now):
        # Another machine may have landed leads.
        message = (
            f"Nothing was published since {moment(published_at)}. The service does that each night."
        )
        yield Finding(Level.ERROR, message, publish, published_at, may_pass=True)


@finder(CHECKS)
def check_tables(facts: Facts) -> Iterator[Finding]:
    """A check on the tables of leads.duckdb fails.

    Meaning: the tables are published, and something in them is unusual. The message says what.
    Do: what the finding says. Nothing is lost and nothing is held back.
    Over: when the check passes after a publication.
    """
    failed: BugError | None = None
    for check in checks() if facts.leads_duckdb.was_published else ():
        try:
            found = problems(facts.leads_duckdb, check) if check.what_to_do else []
        except BugError as error:  # of a mart that couldn't be made, which another check names
            failed = error
            found = []
        if found:
            yield Finding(
                Level.ERROR if check.is_error else Level.WARNING,
                f"{check.table}: this doesn't hold: {check.description}. Found: {some(found)}.",
                check.what_to_do,
                key=f"{check.name}/{check.table}",
            )

    # At the end, so that the other checks are told of.
    if failed is not None:
        raise failed


@finder("answer-members", stays=True)
def answer_members(facts: Facts) -> Iterator[Finding]:
    """The portal's answers have an unknown member beside the list of leads.

    Meaning: an error if the name is one of paging, such as `next`, `page`, `total`, `cursor` or
    `count`. The portal may answer in pages, and the leads of further pages are missing. Another
    name is a warning. The leads that arrived have landed. A name that could be a person's is shown
    as `…`.
    Do: ask the portal's technical contact what the member means. If leads come in pages, look for a
    newer version of leads-pipeline before the portal deletes them. Then hide it with
    `leads-pipeline acknowledge KEY`.
    Over: when a person acknowledges its name and type.
    """
    kinds = {kind.name for kind in facts.kinds}
    for member in sorted(facts.data.state.unknown_members()):
        kind, name, type_ = member.split("/")
        if kind not in kinds:
            continue

        meaning = "The leads that arrived have landed."
        if is_of_paging(name):
            meaning += (
                " The portal may answer in pages, and then the leads of further pages are missing."
            )
        yield Finding(
            Level.ERROR if is_of_paging(name) else Level.WARNING,
            f"The portal's answers with {kind} leads have an unknown member beside the list: "
            f"{name} ({type_}). {meaning}",
            "Ask the portal's technical contact what it means. Then hide it: `leads-pipeline "
            f"acknowledge answer-members/{member}`.",
            key=member,
        )


@finder("drift", stays=True)
def drift(facts: Facts) -> Iterator[Finding]:
    """The portal sends something that the contract doesn't know.

    Meaning: a new field, a new value, or a value of another type, from at least three people. A new
    member of an enumeration, such as `PROPERTY_TYPE_IGLOO`, is only a hint: marts show it in words
    at once. No lead is lost by it. Raw has all of it, and `_extra` shows new fields.
    Do: nothing now. To use a new field, read it from `_extra` in a mart of your own.
    `leads-pipeline acknowledge KEY` hides it.
    Over: when the contract knows it, when it didn't come for 60 days, or when a person acknowledges
    it.
    """
    rows = "select kind, change, field, value, first_seen_day, leads from drift"
    for kind, change, field, value, day, leads in facts.leads_duckdb.rows(rows):
        what = f"{field} = {value}" if value is not None else field
        is_member = change == NEW_MEMBER
        where = (
            "Marts show it in words."
            if is_member
            else "Raw has all of it, and `_extra` shows new fields."
        )
        yield Finding(
            Level.HINT if is_member else Level.WARNING,
            f"The portal sends a {change}: {what}, in {counted(leads, f'{kind} lead')} since "
            f"{day}. None is lost.",
            f"Nothing now. {where} Hide it: `leads-pipeline acknowledge drift`.",
            key=f"{kind}/{what}",
        )


@finder("contacts-emptied", stays=True)
def contacts_emptied(facts: Facts) -> Iterator[Finding]:
    """The portal emptied contacts of leads that it had sent with them.

    Meaning: the newest version of a lead counts, so its name, address or number is gone from
    leads.duckdb. Raw keeps the earlier versions. More than a few leads of a day may be a mistake of
    the portal.
    Do: ask the portal if it meant to. In DuckDB, this shows each version of a lead: `select payload
    from read_parquet('data/raw/applicant_leads/*/*/*.parquet') where lead_id = 'THE-ID' order by
    number`. Then hide the finding with `leads-pipeline acknowledge KEY`.
    Over: when the contacts are back, or when a person acknowledges it.
    """
    for kind in LEAD_KINDS:
        emptied = f"from pipeline.emptied_contacts where kind = {literal(kind.name)}"
        statement = f"""
            select window_day, count(*), count(*) filter (lead_id in (select lead_id {emptied}))
            from {quoted(kind.table)}
            where window_day in (select window_day {emptied})
            group by all
            order by all
        """  # noqa: S608 - our own names
        days = facts.leads_duckdb.rows(statement, table="emptied_contacts")
        for day, leads, without in days:
            level = Level.ERROR if without >= _MANY_EMPTIED * leads else Level.WARNING
            yield Finding(
                level,
                f"The portal emptied the contact of {without} of {leads} {kind.name} leads of "
                f"{day}: a name, address or number that it had sent before. Raw keeps the earlier "
                "versions.",
                "Ask the portal if it meant to. `leads-pipeline explain contacts-emptied` has the "
                "query for earlier versions. Then hide it: `leads-pipeline acknowledge "
                "contacts-emptied`.",
                # A mistake of the portal isn't hidden by a person's own wish.
                key=f"{kind.name}/{day}/{level}",
            )


# --- settings -------------------------------------------------------------------------------------


@finder("time-zone")
def time_zone(facts: Facts) -> Iterator[Finding]:
    """The time zone was changed, or never set.

    Meaning: `LEADS_TIMEZONE` says when a day begins. Days that landed under another zone have other
    hours: leads at their edges are in the neighbouring day. No lead is lost. Without the setting,
    days begin at 00:00 UTC.
    Do: set it back. Or keep the new one, and delete `.state/time_zone` in the data folder. With a
    bucket, first delete `state/time_zone` there. Then the portal's last 28 days are pulled again
    with the new hours.
    Over: when the setting and the folder agree.
    """
    settings = facts.settings
    remembered = facts.data.state.time_zone()
    if settings.scopes and remembered and remembered != settings.zone.key:
        files = [str(facts.data.state.path / "time_zone")]
        bucket = facts.data.bucket
        if bucket is not None:
            files.insert(0, f"{bucket.address}/state/time_zone")
        yield Finding(
            Level.ERROR,
            f"LEADS_TIMEZONE is {settings.zone.key}, and earlier days were pulled as days of "
            f"{remembered}. Leads at midnight are in another day than before.",
            f"Set LEADS_TIMEZONE={remembered}. To keep {settings.zone.key}, delete "
            f"{' and '.join(files)}.",
        )
    elif settings.scopes and "zone" not in settings.model_fields_set:
        yield Finding(
            never_set_up(facts),
            "LEADS_TIMEZONE isn't set, so days begin at 00:00 UTC. In summer, that is 01:00 in "
            "Britain.",
            "Set LEADS_TIMEZONE=Europe/London if your branches are in Britain, or "
            "LEADS_TIMEZONE=UTC to keep it so.",
        )


@finder("branch-names")
def branch_names(facts: Facts) -> Iterator[Finding]:
    """The file with the branches' names can't be read, or lacks a branch.

    Meaning: tables and report show the old names, or ids.
    Do: correct the file that `LEADS_BRANCHES_FILE` names. The message says what is wrong.
    Over: when it can be read, and names each branch.
    """
    file = facts.settings.branches_file
    try:
        names = read_branches(file).names
    except SettingsError as error:
        yield Finding(Level.WARNING, str(error), "Correct the file. The next publication reads it.")
        return

    nameless = [scope.key for scope in facts.scopes if scope.key not in names]
    if not file or not nameless:
        return

    # Excel writes 101.0 for 101, and 00101 is not 101 either.
    unasked = sorted(names.keys() - {scope.key for scope in facts.scopes})
    others = (
        f" It names {some(unasked)}, which LEADS_SCOPES or LEADS_BRANCH_IDS lacks."
        if unasked
        else ""
    )
    yield Finding(
        Level.WARNING,
        f"LEADS_BRANCHES_FILE has no name for {some(nameless)}.{others}",
        f"Correct the id or add a line for each in {file}. The next publication reads it.",
    )


# --- the machine and the service ------------------------------------------------------------------


@finder("disk")
def disk(facts: Facts) -> Iterator[Finding]:
    """The disk of the data folder is nearly full.

    Meaning: a publication needs room for a second leads.duckdb, an erasure for two. On a full disk
    nothing lands and nothing is published. When there is room, the service goes on by itself.
    Do: delete old backups on this disk, or move the data folder to a larger one.
    `LEADS_TABLES=none` saves the room of `tables/`. Never delete `raw/`, `privacy/`, `.state/` or
    `restricted/`.
    Over: when there is room again.
    """
    file = facts.data.folder / WAREHOUSE_FILE
    size = file.stat().st_size if file.exists() else 0
    free = facts.free_bytes

    if free < _WARNING_BYTES + 2 * size:
        is_error = free < _ERROR_BYTES + size
        yield Finding(
            Level.ERROR if is_error else Level.WARNING,
            f"{free / 1e9:.1f} GB are free on the disk of {facts.data.folder}. Publishing "
            f"leads.duckdb needs up to {(size + _ERROR_BYTES) / 1e9:.1f} "
            f"GB{', so it may fail' if is_error else ', an erasure twice that'}.",
            "Delete old backups on this disk, or move the data folder. Never delete raw/, "
            "privacy/, .state/ or restricted/.",
        )


@finder("service")
def service(facts: Facts) -> Iterator[Finding]:
    """The service gives no sign of life, or a schedule or sensor is off.

    Meaning: the service doesn't run, its daemon hangs, or the sensors `retry_failed_partitions` and
    `alert` are off: then nothing is pulled again. Or the schedule or sensor that the message names
    is off, and does nothing.
    Do: start the service: `leads-pipeline serve`, or `systemctl restart leads-pipeline`. If it
    runs, switch the schedule or sensor on in the Dagster UI, under Automation.
    Over: within five minutes. A service that is stopped by ctrl-C, SIGTERM or `systemctl stop` is
    no finding.
    """
    seen_at, names_off = facts.service or ServiceNote(facts.now, [])
    if has_passed(SILENCE, seen_at, facts.now):
        start = "Start it: `leads-pipeline serve`, or `systemctl restart leads-pipeline`"
        if facts.data.state.key_prefix:
            start = "Start the daemon of your Dagster"
        sensor = name_in_dagster(facts.data.state, "retry_failed_partitions")
        yield Finding(
            Level.ERROR,
            f"The service gave no sign of life since {moment(seen_at)}. Nothing is pulled or "
            "published.",
            f"{start}. If it runs, switch the sensor `{sensor}` on in the Dagster UI.",
            seen_at,
        )

    for name in names_off:
        yield Finding(
            Level.ERROR,
            f"{name} is off in the Dagster UI, and the pipeline needs it.",
            f"Switch {name} on in the Dagster UI, under Automation.",
            key=name,
        )

"""Findings about settings and privacy: time zone, branch names, the suppression list and retention.

Belongs here: the finders that look at what somebody set or left out. Doesn't: the other finders (findings.py).
"""

from collections.abc import Iterator

from leads_pipeline.errors import SettingsError
from leads_pipeline.observe.finding import Found, Level, finder, never_set_up, some
from leads_pipeline.observe.known import Known
from leads_pipeline.storage.branches import read_branches


@finder("time-zone")
def time_zone(known: Known) -> Iterator[Found]:
    """The time zone was changed, or never set.

    Meaning: `LEADS_TIMEZONE` says when a day begins. Days that landed under another zone have other hours: leads at
    their edges are in the neighbouring day. No lead is lost. Without the setting, days begin at 00:00 UTC.
    Do: set it back. Or keep the new one, and delete `.state/time_zone` in the data folder. Then the portal's last 28
    days are pulled again with the new hours.
    Over: when the setting and the folder agree.
    """
    settings, remembered = known.settings, known.data.state.time_zone()
    if settings.scopes and remembered and remembered != settings.zone.key:
        yield Found(
            Level.ERROR,
            f"LEADS_TIMEZONE is {settings.zone.key}, and earlier days were pulled as days of {remembered}. Leads at "
            "midnight are in another day than before.",
            f"Set LEADS_TIMEZONE={remembered}. To keep {settings.zone.key}, delete "
            f"{known.data.state.path / 'time_zone'}.",
        )
    elif settings.scopes and "zone" not in settings.model_fields_set:
        yield Found(
            never_set_up(known),
            "LEADS_TIMEZONE isn't set, so days begin at 00:00 UTC. In summer, that is 01:00 in Britain.",
            "Set LEADS_TIMEZONE=Europe/London if your branches are in Britain, or LEADS_TIMEZONE=UTC to keep it so.",
        )


@finder("branch-names")
def branch_names(known: Known) -> Iterator[Found]:
    """The file with the branches' names can't be read, or lacks a branch.

    Meaning: tables and report show the old names, or ids.
    Do: correct the file that `LEADS_BRANCHES_FILE` names. The message says what is wrong.
    Over: when it can be read, and names each branch.
    """
    file = known.settings.branches_file
    try:
        names = read_branches(file).names
    except SettingsError as error:
        yield Found(Level.WARNING, str(error), "Correct the file. The next publication reads it.")
        return
    if file and (nameless := [scope.key for scope in known.scopes if scope.key not in names]):
        yield Found(
            Level.WARNING,
            f"LEADS_BRANCHES_FILE has no name for {some(nameless)}.",
            f"Add a line for each to {file}. The next publication reads it.",
        )


@finder("own-marts")
def own_marts(known: Known) -> Iterator[Found]:
    """A mart or a file of your own can't be made into a table.

    Meaning: `LEADS_MARTS_DIR` has a file with an error, or can't be read. The table keeps its last good rows. After an
    erasure it is removed, as it may hold an erased person. All other tables are as usual.
    Do: mend the file that the message names. The service tries it again within about a minute. A file that took too
    long or too much memory is tried again when it changes, and once a day.
    Over: when a publication makes the table.
    """
    rows = (
        "select file, problem, not is_made and name in (select table_name from duckdb_tables()) "
        "from pipeline.own_tables where problem is not null order by file"
    )
    for file, problem, is_kept in known.rows(rows, table="own_tables"):
        yield Found(
            Level.WARNING,
            f"{file}: {problem}{' The table keeps its last good rows.' if is_kept else ''}",
            f"Mend it, or take it out of {known.settings.marts_dir}. The next publication reads it again.",
            part=file,
        )


@finder("sweep")
def sweep(known: Known) -> Iterator[Found]:
    """The folder is behind the suppression list.

    Meaning: an erasure was cut off, or a backup was restored. Leads of people on the list may still be published.
    Do: `leads-pipeline privacy apply`. The next publication does the same.
    Over: when the folder follows the list.
    """
    if known.data.is_behind:
        yield Found(
            Level.ERROR,
            "The data folder is behind the suppression list: leads of people on the list may still be there.",
            "Run `leads-pipeline privacy apply`.",
            may_pass=True,
        )


@finder("suppression-list")
def suppression_list(known: Known) -> Iterator[Found]:
    """The suppression list lies in the data folder.

    Meaning: a restored backup of the data folder brings an older list back, and with it the people who were erased
    since.
    Do: move the folder to a place with its own backups, and set `LEADS_PRIVACY_DIR`.
    Over: when the list is in another folder. An empty list is no finding.
    """
    entries = known.data.gate.entries
    if known.data.bucket is None and entries.folder.is_relative_to(known.data.folder) and entries.read():
        yield Found(
            never_set_up(known),
            f"The suppression list is in the data folder, in {entries.folder}. A restored backup would bring erased "
            "people back.",
            f"Move it to another disk that has its own backups, such as `mv {entries.folder} /mnt/other/privacy`. Then "
            "set LEADS_PRIVACY_DIR to its new place.",
        )


@finder("retention")
def retention(known: Known) -> Iterator[Found]:
    """Personal data is kept for ever.

    Meaning: `LEADS_KEEP_PERSONAL_DAYS` isn't set. UK GDPR asks for a reason to keep names, addresses and messages.
    Do: set it to the days that you need them. Older leads become anonymous for good: `docs/guides/answer-a-person.md`
    says what is deleted.
    Over: when it is set.
    """
    if known.settings.keep_personal_days is None:
        yield Found(
            Level.HINT,
            "LEADS_KEEP_PERSONAL_DAYS isn't set: names, addresses and messages are kept for ever.",
            "Set LEADS_KEEP_PERSONAL_DAYS to the days that you need them, such as 730. docs/guides/answer-a-person.md "
            "says what is deleted then.",
        )

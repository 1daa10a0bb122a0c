"""The finders of privacy: open requests, a folder behind the list, the list's place, retention."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from leads_pipeline.domain.moments import has_passed
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.requests import due_on, in_words, open_entries
from leads_pipeline.features.privacy.settings import PrivacySettings
from leads_pipeline.features.privacy.suppression import Action
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.finding import Finding, Level, finder, never_set_up
from leads_pipeline.words import counted

# The command carries a request out at once: with millions of leads within an hour.
_LONGEST_REQUEST: Final = timedelta(days=1)


@finder("sweep", is_verified=True)
def sweep(facts: Facts) -> Iterator[Finding]:
    """The folder is behind the suppression list.

    Meaning: an erasure was cut off, or a backup was restored. Leads of people on the list may still
    be published.
    Do: `leads-pipeline privacy apply`. The next publication does the same.
    Over: when the folder follows the list.
    """
    if facts.data.is_behind_list:
        yield Finding(
            Level.ERROR,
            "The data folder is behind the suppression list: leads of people on the list may still "
            "be there.",
            "Run `leads-pipeline privacy apply`.",
            may_pass=True,
        )


@finder("corrections-lost", stays=True)
def corrections_lost(facts: Facts) -> Iterator[Finding]:
    """A correction is lost.

    Meaning: the file with the correction was damaged, or a backup from before the correction was
    restored. Tables show the wrong address or number again. If leads are delivered, your own system
    gets it too.
    Do: look in your own register for the right address or number. Then run `leads-pipeline privacy
    correct` again. `leads-pipeline privacy log` has the reference of the case.
    Over: when the leads are corrected again or erased, or when a person acknowledges it.
    """
    suppressed = list_of(facts.data).read()
    for entry in suppressed.active:
        if entry.action is Action.CORRECT and (
            leads := suppressed.lacking.intersection(entry.leads)
        ):
            case = f" (case {entry.case})" if entry.case else ""
            yield Finding(
                Level.ERROR,
                f"Correction {entry.number}{case} is lost for {counted(len(leads), 'lead')}. "
                "Tables show the wrong address or number again.",
                "Look in your own register for the right one. Then run `leads-pipeline privacy "
                "correct` again.",
                key=str(entry.number),
            )


@finder("requests-open")
def requests_open(facts: Facts) -> Iterator[Finding]:
    """A person's request isn't carried out.

    Meaning: its command was interrupted, or something of the person is left. After the day on which
    the person has to be answered it is an error.
    Do: run `leads-pipeline privacy apply`. It names what is left.
    Over: when the request is done.
    """
    for entry in open_entries(list_of(facts.data).read()):
        if has_passed(_LONGEST_REQUEST, entry.at, facts.now):
            due = due_on(entry.received or entry.at.date())
            case = f" (case {entry.case})" if entry.case else ""
            yield Finding(
                Level.ERROR if facts.now.date() > due else Level.WARNING,
                f"Request {entry.number}{case}, {in_words(entry)}, isn't carried out. The person "
                f"has to be answered by {due}.",
                "Run `leads-pipeline privacy apply`. It names what is left.",
                since=entry.at,
                key=str(entry.number),
            )


@finder("suppression-list")
def suppression_list(facts: Facts) -> Iterator[Finding]:
    """The suppression list lies in the data folder.

    Meaning: a restored backup of the data folder brings an older list back, and with it the people
    who were erased since.
    Do: move the folder to a place with its own backups, and set `LEADS_PRIVACY_DIR`.
    Over: when the list is in another folder. An empty list is no finding.
    """
    entries = list_of(facts.data)
    if (
        facts.data.bucket is None
        and entries.folder.is_relative_to(facts.data.folder)
        and entries.read()
    ):
        yield Finding(
            never_set_up(facts),
            f"The suppression list is in the data folder, in {entries.folder}. A restored backup "
            "would bring erased people back.",
            f"Move it to another disk that has its own backups, such as `mv {entries.folder} "
            "/mnt/other/privacy`. Then set LEADS_PRIVACY_DIR to its new place.",
        )


@finder("retention")
def retention(facts: Facts) -> Iterator[Finding]:
    """Personal data is kept for ever.

    Meaning: `LEADS_KEEP_PERSONAL_DAYS` isn't set. UK GDPR asks for a reason to keep names,
    addresses and messages.
    Do: set it to the days that you need them. Older leads become anonymous for good.
    `leads-pipeline privacy retain --help` says what is deleted.
    Over: when it is set.
    """
    if facts.settings.of(PrivacySettings).keep_personal_days is None:
        yield Finding(
            Level.HINT,
            "LEADS_KEEP_PERSONAL_DAYS isn't set: names, addresses and messages are kept for ever.",
            "Set LEADS_KEEP_PERSONAL_DAYS to the days that you need them, such as 365. "
            "`leads-pipeline privacy retain --help` says what is deleted then.",
        )

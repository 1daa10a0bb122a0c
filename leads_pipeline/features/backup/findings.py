"""The finder of backups."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from leads_pipeline.domain.moments import has_passed
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.finding import Finding, Level, finder, never_set_up
from leads_pipeline.words import moment

# A nightly one may fail once.
_OLDEST_BACKUP: Final = timedelta(days=2)


@finder("backup")
def backup(facts: Facts) -> Iterator[Finding]:
    """There is no backup of the last two days.

    Meaning: leads that the portal has deleted exist only on this disk.
    Do: run `leads-pipeline backup TARGET` each night. If you do, see what it prints.
    Over: when a backup was made.
    """
    made_at = facts.data.state.last_backup()
    if made_at is None and facts.data.bucket is None:
        yield Finding(
            never_set_up(facts),
            "No backup yet. Leads that the portal has deleted exist only on this disk.",
            "Run `leads-pipeline backup TARGET` each night. TARGET is a folder on another disk, "
            "such as /mnt/backup.",
        )
    elif made_at and has_passed(_OLDEST_BACKUP, made_at, facts.now):
        yield Finding(
            Level.WARNING,
            f"The last backup is from {moment(made_at)}. Once the portal deletes newer leads, they "
            "exist only on this disk.",
            "Run `leads-pipeline backup TARGET`, and see why it doesn't run each night.",
            made_at,
        )

"""The finding of tables of one's own."""

from collections.abc import Iterator

from leads_pipeline.features.own_tables.settings import OwnTablesSettings
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.finding import Finding, Level, finder


@finder("own-marts")
def own_marts(facts: Facts) -> Iterator[Finding]:
    """A mart or file of your own can't become a table, or only without some of its lines.

    Meaning: `LEADS_MARTS_DIR` has a file with an error, or can't be read. A table that can't be
    made keeps its last good rows. After an erasure it is removed, as it may hold an erased person.
    A CSV with lines that don't fit its header is made without these lines. All other tables are as
    usual.
    Do: mend the file that the message names. The service tries it again within about a minute. A
    file that took too long or too much memory is tried again when it changes, and once a day.
    Over: when a publication makes the table with all its lines.
    """
    folder = facts.settings.of(OwnTablesSettings).marts_dir
    rows = (
        "select file, problem, not is_made and name in (select table_name from duckdb_tables()) "
        "from pipeline.own_tables where problem is not null order by file"
    )
    for file, problem, is_kept in facts.leads_duckdb.rows(rows, table="own_tables"):
        what_to_do = f"Mend it, or take it out of {folder}."
        if file == "LEADS_MARTS_DIR":  # the folder itself can't be read
            what_to_do = "Bring the folder back, or name another one."

        yield Finding(
            Level.WARNING,
            f"{file}: {problem}{' The table keeps its last good rows.' if is_kept else ''}",
            f"{what_to_do} The next publication reads it again.",
            key=file,
        )

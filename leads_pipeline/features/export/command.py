"""Tables as files for spreadsheets and BI: `export`."""

from pathlib import Path

import click

from leads_pipeline.cli.installation import open_existing_folder, publish
from leads_pipeline.cli.output import err
from leads_pipeline.errors import QuestionError, StorageError
from leads_pipeline.features.export.files import CELL_UNITS, FORMATS, write_export
from leads_pipeline.words import counted


@click.command()
@click.argument("table")
@click.option(
    "--to",
    "folder",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder for the files, outside of the data folder. Files of the same names are "
    "replaced.",
)
@click.option(
    "--format", "format_", required=True, type=click.Choice(FORMATS), help="What the files are."
)
@click.option(
    "--raw",
    "is_raw",
    is_flag=True,
    help="Write CSV for programs: moments in UTC, texts as they are, no byte order mark.",
)
def export(table: str, folder: Path, format_: str, is_raw: bool) -> None:
    """Write TABLE, or `all` tables and marts of leads.duckdb, as files for spreadsheets and BI.

    csv and xlsx are for people: moments are in LEADS_TIMEZONE, and no text runs as a formula. csv
    has a ' before such texts. parquet has all types. No erasure reaches the files: delete them
    after one, and export again.

    Each file is replaced as a whole, after all are written.

    Exit code 2 if there is no such table, nothing is published yet, or the disk is full.
    """
    if is_raw and format_ != "csv":
        raise QuestionError("--raw is for csv. Leave it out, or say --format csv.")
    settings, data = open_existing_folder()
    if data.is_behind_list and (trouble := publish()):
        raise StorageError(trouble)
    with err.status("Writing"):
        written = write_export(data, table, folder, format_, settings.zone.key, is_raw=is_raw)
    for one in written:
        sheets = f" in {one.sheets} sheets" if one.sheets > 1 else ""
        click.echo(f"Wrote {one.file}: {counted(one.rows, 'row')}{sheets}.")
        if one.cut:
            click.echo(
                f"Cut in {one.file.name}: {counted(one.cut, 'text')} longer than {CELL_UNITS:,} "
                "characters: a cell of Excel holds no more. csv and parquet have them whole.",
                err=True,
            )

"""The weekly page by hand: `report`."""

import sys
from datetime import UTC, datetime

import click

from leads_pipeline.cli.installation import open_existing_folder, publish
from leads_pipeline.errors import StorageError
from leads_pipeline.warehouse.published import LeadsFile
from leads_pipeline.words import counted


@click.command()
@click.option(
    "--mail",
    "is_mailed",
    is_flag=True,
    help="Mail it now to everybody whom LEADS_REPORT_MAIL names.",
)
def report(is_mailed: bool) -> None:
    """Write the page of last week's figures: reports/leads.html in the data folder.

    The service writes it after each publication, and mails it on Monday at 07:00 to those who
    haven't got it.

    Exit code 1 if a mail wasn't sent, 2 if nothing is published yet or a setting is wrong.
    """
    from leads_pipeline.features.report.mailing import send_now
    from leads_pipeline.features.report.page import write_report

    settings, data = open_existing_folder()
    if data.is_behind_list and (trouble := publish()):
        raise StorageError(trouble)
    with LeadsFile(data).reading() as db:
        path = write_report(db, data.folder)
    click.echo(f"Wrote {path}.")

    if is_mailed:
        sent = send_now(settings, data, datetime.now(UTC))
        click.echo(f"Sent {counted(sent.count, 'mail')}.")
        if sent.trouble:
            click.echo(sent.trouble, err=True)
            sys.exit(1)

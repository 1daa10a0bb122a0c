"""`privacy apply` takes who is on the suppression list out again: of the data folder, of another one, of a copy."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.markup import escape

from leads_pipeline.assets.published import known_branches
from leads_pipeline.cli.erasing import show_open, swept_and_published
from leads_pipeline.cli.session import Session, configured, err, out, plain_errors
from leads_pipeline.definitions import first_day
from leads_pipeline.duck import WAREHOUSE_FILE
from leads_pipeline.lake import Lake
from leads_pipeline.privacy.elsewhere import apply_to_copy, apply_to_folder, is_data_folder
from leads_pipeline.privacy.erase import Swept, left_by_list
from leads_pipeline.privacy.objecting import close
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse import Grid, Warehouse


@click.command(short_help="Apply the suppression list again, here or to PATH.")
@click.argument("path", required=False, type=click.Path(path_type=Path))
def apply(path: Path | None) -> None:
    """Apply the suppression list to the data folder again: finish what was interrupted, or what a backup brought back.

    PATH is a restored data folder elsewhere, or a copy of leads.duckdb: then it is applied to that instead, which
    somebody has to do who kept one from before an erasure. It is the list of this installation.

    Without knowing whom: by the hashes, in raw files, deliveries, staged days and what is published. So it closes
    objections and restrictions, and no erasure: `privacy verify` does, which looks everywhere for who is given.

    Exit code 1 if something that the list refuses is still there, or a file couldn't be read.
    """
    with plain_errors():
        settings = configured()
        if path is None or path.resolve() == settings.data_dir.resolve():
            left = _apply_here()
        elif is_data_folder(path):
            left = _apply_to_folder(settings, path.resolve())
        else:
            left = _apply_to_copy(settings, path.resolve())
        for what in left:
            err.print(f"[bold red]left:[/bold red] {escape(what)}", highlight=False, soft_wrap=True)
    sys.exit(1 if left else 0)


def _apply_here() -> Sequence[str]:
    with Session.opened() as session:
        swept, troubles = swept_and_published(session)
        left = [*dict.fromkeys([*left_by_list(session.lake), *close(session.lake, swept)])]
        _tell(swept)
        show_open(session.lake)
    return [*left, *troubles]


def _apply_to_folder(settings: Settings, folder: Path) -> Sequence[str]:
    lake = Lake(folder, _list_of(settings))
    branches, _ = known_branches(settings.branches_file, Warehouse(lake))
    grid = Grid(settings.scopes, first_day(replace(settings, data_dir=folder)), settings.zone, branches=branches)
    with err.status(f"Applying the list to {folder}"):
        swept, left = apply_to_folder(lake, grid, datetime.now(UTC))
    _tell(swept)
    return left


def _apply_to_copy(settings: Settings, copy: Path) -> Sequence[str]:
    lake = Lake.of(settings)
    _list_of(settings)
    with err.status(f"Writing {copy} anew"):
        gone, left = apply_to_copy(lake, copy, settings.zone)
    out.print(f"{gone} leads were taken out of {copy}, which was written anew.", highlight=False, soft_wrap=True)
    return left


def _list_of(settings: Settings) -> Path:
    """The folder of this installation's list; where nobody is on it, say so, as another one may be meant."""
    suppression = Lake.refreshed(settings).suppression
    if not suppression.read():
        out.print(f"Nobody is on the suppression list {suppression.path}.", highlight=False, soft_wrap=True)
    return suppression.folder


def _tell(swept: Swept) -> None:
    out.print(
        f"{swept.leads} leads were taken out of {swept.files} raw files and {swept.deliveries} deliveries, "
        f"{sum(swept.days.values())} days were staged anew, and {WAREHOUSE_FILE} was published without them."
    )

"""The step of a publication that deletes files which nothing brings up to date any more.

No erasure would reach these files.

Belongs here: files of features that are gone. Doesn't: what a feature deletes of its own.
"""

import shutil
from collections.abc import Set

from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.durable import storing
from leads_pipeline.warehouse.step import Publication, Step


class DeleteUnclaimed(Step):
    """Deletes files that a feature made from the leads, if the feature is gone.

    No erasure would reach them. `claimed` are the patterns of what features make, below the data
    folder.
    """

    name = "unclaimed"

    def __init__(self, data: DataFolder, claimed: Set[str]) -> None:
        self._data = data
        self._claimed = claimed

    def after(self, publication: Publication) -> None:  # noqa: ARG002 - as any step
        """Delete it, and remember what is made now."""
        made = self._data.state.derived()
        folder = self._data.folder
        paths = [path for pattern in made - self._claimed for path in folder.glob(pattern)]

        # Links first: one that leads nowhere would not be found again.
        for path in sorted(paths, key=lambda path: not path.is_symlink()):
            with storing(path):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()

        if made != self._claimed:
            self._data.state.note_derived(self._claimed)

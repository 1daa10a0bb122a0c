"""The step of a publication that deletes this machine's copy if no bucket has the data any more."""

import shutil
from datetime import datetime

from leads_pipeline.raw.data_folder import CACHE, DataFolder
from leads_pipeline.raw.durable import storing
from leads_pipeline.raw.names import RAW, RESTRICTED
from leads_pipeline.warehouse.publication import PublicationSettings
from leads_pipeline.warehouse.step import Publication, Step


def steps(data: DataFolder, settings: PublicationSettings, now: datetime) -> list[Step]:  # noqa: ARG001 - as any feature
    """Return the step."""
    return [DeleteCache(data)]


class DeleteCache(Step):
    """Deletes files that were read from a bucket before the data moved into the folder.

    No erasure reaches them.
    """

    name = CACHE

    def __init__(self, data: DataFolder) -> None:
        self._data = data

    def after(self, publication: Publication) -> None:  # noqa: ARG002 - as any step
        """Delete these files, unless there is a bucket."""
        if self._data.bucket is not None:
            return
        for root in (RAW, RESTRICTED):
            cache = self._data.folder / CACHE / root
            with storing(cache):
                if cache.exists():
                    shutil.rmtree(cache)

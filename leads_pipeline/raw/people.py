"""Where people are besides raw windows and tables.

A feature that keeps leads, or who got them, somewhere else says here what of a person it has.
Erasures and access requests ask all of them.
"""

from collections.abc import Callable

from leads_pipeline.extensions import brought
from leads_pipeline.raw.data_folder import DataFolder

# Whether a lead, by its kind and id, is the person's.
IsMeant = Callable[[tuple[str, str]], bool]


class HoldsPeople:
    """What holds people. A feature overrides the methods that it needs."""

    def recipients(self, is_meant: IsMeant) -> dict[str, list[str]]:  # noqa: ARG002 - as any
        """Return the hosts that such leads were sent to, each with its days as ISO dates.

        Raises StorageError.
        """
        return {}

    def notes_on(self, is_meant: IsMeant) -> list[str]:  # noqa: ARG002 - as any
        """Return what else is kept of such leads, in sentences for the person.

        Raises StorageError.
        """
        return []

    def untold(self) -> set[str]:
        """Return the hosts that a person has to tell of erasures.

        The others are told. Raises StorageError.
        """
        return set()

    def confirmations(self, is_meant: IsMeant) -> list[str]:  # noqa: ARG002 - as any
        """Return who has confirmed the erasure of such leads, in sentences. Raises StorageError."""
        return []

    def forget_confirmed(self, is_meant: IsMeant) -> None:
        """Forget such leads, once their receipt has the confirmations. Raises StorageError."""

    def forget(self, is_meant: IsMeant) -> list[str]:  # noqa: ARG002 - as any
        """Forget such leads.

        Return what couldn't be forgotten, in sentences that say what to do.
        """
        return []

    def left(self, is_meant: IsMeant) -> list[str]:  # noqa: ARG002 - as any
        """Return what still has such leads after a publication, in sentences with what to do."""
        return []


def holders(data: DataFolder) -> list[HoldsPeople]:
    """Return everything that holds people."""
    return [of_feature(data) for of_feature in brought("holds_people")]

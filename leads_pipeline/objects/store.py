"""What an object store can do for us.

Belongs here: the five verbs. Doesn't: any store.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol


class ObjectStore(Protocol):
    """Many processes on many machines use it at once. Keys are relative, with slashes.

    Every verb raises StorageError where the store can't be reached, or refuses.
    """

    @property
    def address(self) -> str:
        """As LEADS_DATA_DIR has it."""

    @property
    def options(self) -> dict[str, str]:
        """What deltalake needs besides the address and the AWS_ variables."""

    def create(self, key: str, content: bytes) -> bool:
        """Keep the content under the key, for good when this returns. False where the key is taken: nothing changed."""

    def create_once(self, key: str, content: bytes) -> bool:
        """The same, and true if the key holds this content already."""

    def get(self, key: str) -> bytes | None:
        """What the key holds; None where there is nothing, or no longer."""

    def list(self, prefix: str) -> list[str]:
        """Every key that begins with the prefix, which is empty or ends at a slash, sorted.

        None that was created before is missing.
        """

    def delete(self, keys: Sequence[str]) -> None:
        """Have the keys gone; those that are gone already are no error."""

    def created_at(self, key: str) -> datetime | None:
        """When the object was created, by the store's own clock; None where there is none."""

"""Where a client secret comes from, read anew at each use, so that a replaced one works without a restart.

Belongs here: sources of secrets, and clear words for what is wrong with one. Doesn't: what a secret is used for
(auth.py), or which variable names it (settings.py).
"""

import stat
import unicodedata
from pathlib import Path
from typing import Protocol

from leads_pipeline.errors import CredentialsError

# Issued secrets have 32 to 128 characters. Whatever is beyond this is another file by mistake.
MAX_SECRET_BYTES = 8192


class SecretSource(Protocol):
    """Anything that can hand out the secret of the moment. Its `repr` must not show it."""

    def read(self) -> str:
        """The secret as it is now; called before each request, so keep it quick. Raises CredentialsError."""
        ...


class StaticSecret:
    """A secret that whoever made this object already holds, such as one from an environment variable."""

    def __init__(self, value: str) -> None:
        self._value = value

    def read(self) -> str:
        """The value; raises CredentialsError if it can't be a secret."""
        return _checked(self._value, "The client secret")

    def __repr__(self) -> str:
        return "StaticSecret(…)"


class FileSecret:
    """A secret in a file of its own, as container platforms mount them. One line break at its end is not part of it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> str:
        """The file's content; raises CredentialsError if it is missing, unreadable or can't be a secret."""
        named = f"The secret file {self.path}"
        try:
            # A pipe could be read only once, and the next read would wait for ever.
            if not stat.S_ISREG(self.path.stat().st_mode):
                raise CredentialsError(f"{named} is not a regular file. Put the secret alone into a file.")
            with self.path.open("rb") as file:
                content = file.read(MAX_SECRET_BYTES + 1)
        except OSError as error:
            raise CredentialsError(
                f"{named} can't be read ({error.strerror}). Put the secret there, readable for the user that runs this."
            ) from None
        if len(content) > MAX_SECRET_BYTES:
            raise CredentialsError(f"{named} holds more than {MAX_SECRET_BYTES} bytes: that is no client secret.")
        try:
            text = content.decode("utf-8-sig")  # some editors put a byte order mark first
        except UnicodeDecodeError:
            text = None
        if text is None:  # outside of the except block: its error holds the content
            raise CredentialsError(f"{named} is not UTF-8 text. Save the secret alone as plain text.")
        return _checked(text.removesuffix("\n").removesuffix("\r"), named)

    def __repr__(self) -> str:
        return f"FileSecret({str(self.path)!r})"


def _checked(value: str, named: str) -> str:
    if not value.strip():
        raise CredentialsError(f"{named} is empty. Put the secret there that the portal issued.")
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in value):
        raise CredentialsError(
            f"{named} holds a line break or another control character. It must be the secret alone, decrypted."
        )
    return value

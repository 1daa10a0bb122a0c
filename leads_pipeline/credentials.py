"""Where a client secret comes from, read anew at each use, so that a replaced one works without a restart.

Belongs here: sources of secrets, and clear words for what is wrong with one. Doesn't: what a secret is used for
(auth/), or which variables name it (resources.py, cli/).
"""

import os
import stat
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from leads_pipeline import pgp
from leads_pipeline.errors import CredentialsError, SettingsError
from leads_pipeline.settings import path_of

# Issued secrets have 32 to 128 characters. Whatever is beyond this is another file by mistake.
MAX_SECRET_BYTES = 8192
# A 4096-bit key of gpg's has 7 kB; signatures of other people can make it grow.
MAX_PGP_BYTES = 1024 * 1024


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
        return _text(_content(self.path, MAX_SECRET_BYTES, named), named)

    def __repr__(self) -> str:
        return f"FileSecret({str(self.path)!r})"


class PgpSecret:
    """The secret in a PGP message, as the portal delivers it, opened with a private key and its passphrase.

    Opening takes 0.4 seconds, so what was opened is kept until one of the files is another.
    """

    def __init__(self, message: Path, private_key: Path, passphrase: SecretSource | None) -> None:
        self.message = message
        self.private_key = private_key
        self._passphrase = passphrase
        self._opened: tuple[object, str] | None = None

    def read(self) -> str:
        """The message's content; raises CredentialsError if a file is missing, or the message doesn't open."""
        passphrase = self._read_passphrase()
        state = (passphrase, _state(self.message), _state(self.private_key))
        if self._opened is None or self._opened[0] != state:
            self._opened = (state, self._open(passphrase))
        return self._opened[1]

    def _read_passphrase(self) -> str | None:
        if self._passphrase is None:
            return None
        try:
            return self._passphrase.read()
        except CredentialsError as error:
            raise CredentialsError(f"The passphrase of {self.private_key} can't be had. {error}") from None

    def _open(self, passphrase: str | None) -> str:
        message = _content(self.message, MAX_PGP_BYTES, f"The PGP message {self.message}")
        private_key = _content(self.private_key, MAX_PGP_BYTES, f"The private key {self.private_key}")
        try:
            content = pgp.decrypt(message, private_key, passphrase)
        except CredentialsError as error:
            why = str(error)
        else:
            return _text(content, f"What the PGP message {self.message} holds")
        raise CredentialsError(f"The secret in {self.message} can't be had with the key {self.private_key}. {why}")

    def __repr__(self) -> str:
        return f"PgpSecret({str(self.message)!r}, {str(self.private_key)!r}, …)"


def secret_of(ways: Mapping[str, str | None]) -> SecretSource | None:
    """The secret that the first variable holds, or the file that the second one names; None where neither is set.

    Raises SettingsError where both are.
    """
    only_one(ways)
    value, file = ways.values()
    if file:
        return FileSecret(path_of(file))
    return StaticSecret(value) if value else None


def only_one(ways: Mapping[str, str | None]) -> None:
    """Raises SettingsError where more than one of the variables, which mean the same, is set."""
    given = [variable for variable, value in ways.items() if value]
    if len(given) > 1:
        raise SettingsError(f"{' and '.join(given)} are set, and mean the same. Keep one.")


def write_key_pair(user_id: str, passphrase: str, private_key: Path) -> str:
    """Make a key pair, write the private key, locked, for this user alone to read, and return the public half.

    Takes 5 to 60 seconds. Raises CredentialsError if the file exists or can't be written.
    """
    made, public = None, ""
    try:
        # Opened first: to fail after a minute would be a pity, and nothing is overwritten.
        with open(private_key, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            try:
                made, public = pgp.new_key_pair(user_id, passphrase)
                file.write(made)
            finally:
                if made is None:
                    private_key.unlink()
    except FileExistsError:
        raise CredentialsError(
            f"{private_key} exists and stays as it is: what was encrypted for it could never be read again. Name "
            "another file."
        ) from None
    except OSError as error:
        raise CredentialsError(
            f"{private_key} can't be written ({error.strerror}). Name a file in a folder of yours."
        ) from None
    return public


def _state(path: Path) -> tuple[int, ...] | None:
    """What changes when a file is replaced or written to; None if it isn't there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _content(path: Path, max_bytes: int, named: str) -> bytes:
    try:
        # A pipe could be read only once, and the next read would wait for ever.
        if not stat.S_ISREG(path.stat().st_mode):
            raise CredentialsError(f"{named} is not a regular file. Put the content alone into a file.")
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise CredentialsError(
            f"{named} can't be read ({error.strerror}). Put it there, readable for the user that runs this."
        ) from None
    if len(content) > max_bytes:
        raise CredentialsError(f"{named} holds more than {max_bytes} bytes: that is something else by mistake.")
    return content


def _text(content: bytes, named: str) -> str:
    try:
        text = content.decode("utf-8-sig")  # some editors put a byte order mark first
    except UnicodeDecodeError:
        text = None
    if text is None:  # outside of the except block: its error holds the content
        raise CredentialsError(f"{named} is not UTF-8 text. It must be the secret alone, as plain text.")
    return _checked(text.removesuffix("\n").removesuffix("\r"), named)


def _checked(value: str, named: str) -> str:
    if not value.strip():
        raise CredentialsError(f"{named} is empty. Put the secret alone there.")
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in value):
        raise CredentialsError(
            f"{named} holds a line break or another control character. It must be the secret alone, decrypted."
        )
    return value

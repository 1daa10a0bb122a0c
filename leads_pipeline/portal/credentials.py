"""The sources of a secret: a variable, a file, or a PGP message. Each file is read once a process.

Belongs here: sources of secrets, and clear words if one can't be read. Doesn't: the use of a secret
(portal/), or which variables name it (orchestration/resources.py, cli/).
"""

import stat
import unicodedata
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from leads_pipeline.errors import CredentialsError
from leads_pipeline.portal import pgp
from leads_pipeline.settings import Secret, odd_character

# Issued secrets have 32 to 128 characters. A larger file is another one by mistake.
MAX_SECRET_BYTES = 8192
# A 4096-bit key has 7 kB. Signatures of other people make it grow.
MAX_PGP_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PgpSecret:
    """The secret in the portal's PGP message, opened with a private key and its passphrase."""

    message: Path
    private_key: Path
    passphrase: Secret | None


def read_secret(secret: Secret | PgpSecret) -> str:
    """Return the secret.

    One line break at the end of a file is not part of the secret, as container platforms mount
    secrets so. Raises CredentialsError if the secret can't be read, can't be a secret, or its
    message doesn't open.
    """
    if isinstance(secret, Secret):
        return (
            _file_secret(secret.file) if secret.file else _checked(secret.value or "", "The secret")
        )
    try:
        passphrase = read_secret(secret.passphrase) if secret.passphrase else None
    except CredentialsError as error:
        raise CredentialsError(
            f"The passphrase of {secret.private_key} can't be read. {error}"
        ) from None
    return _pgp_secret(secret.message, secret.private_key, passphrase)


# An error isn't remembered: once the file is corrected, the next use reads it.
@cache
def _file_secret(path: Path) -> str:
    named = f"The secret file {path}"
    return _text(_content(path, MAX_SECRET_BYTES, named), named)


@cache
def _pgp_secret(message: Path, private_key: Path, passphrase: str | None) -> str:
    content = _content(message, MAX_PGP_BYTES, f"The PGP message {message}")
    key = _content(private_key, MAX_PGP_BYTES, f"The private key {private_key}")
    try:
        return _text(
            pgp.decrypt(content, key, passphrase), f"The content of the PGP message {message}"
        )
    except CredentialsError as error:
        why = str(error)
    raise CredentialsError(
        f"The secret in {message} can't be opened with the key {private_key}. {why}"
    )


def client_secret(secret: Secret | PgpSecret) -> str:
    """Read a client secret.

    Raises CredentialsError if it can't be read, or holds a character that no secret has.
    """
    value = read_secret(secret)
    if odd := odd_character(value):
        raise CredentialsError(
            f"The client secret {odd}. Copy the secret alone, from the portal's message."
        )
    return value


def _content(path: Path, max_bytes: int, named: str) -> bytes:
    try:
        # A pipe could be read only once, and the next read would wait for ever.
        if not stat.S_ISREG(path.stat().st_mode):
            raise CredentialsError(
                f"{named} is not a regular file. Put the content alone into a file."
            )
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise CredentialsError(
            f"{named} can't be read ({error.strerror}). Put it there, readable for the user that "
            "runs this."
        ) from None

    if len(content) > max_bytes:
        raise CredentialsError(
            f"{named} holds more than {max_bytes} bytes, so it is another file by mistake."
        )

    return content


def _text(content: bytes, named: str) -> str:
    try:
        text = content.decode("utf-8-sig")  # some editors put a byte order mark first
    except UnicodeDecodeError:
        text = None
    if text is None:  # outside of the except block: its error holds the content
        raise CredentialsError(
            f"{named} is not UTF-8 text. It must be the secret alone, as plain text."
        )
    return _checked(text.removesuffix("\n").removesuffix("\r"), named)


def _checked(value: str, named: str) -> str:
    if not value.strip():
        raise CredentialsError(f"{named} is empty. Put the secret alone there.")
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in value):
        raise CredentialsError(
            f"{named} holds a line break or another control character. It must be the secret "
            "alone, decrypted."
        )
    return value

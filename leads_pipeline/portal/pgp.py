"""Opens PGP messages with gpg, in a keyring that is made for one message and deleted afterwards.

Belongs here: bytes in, bytes out, and what to do if a message doesn't open. Doesn't: files
(portal/credentials.py).
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from leads_pipeline.errors import CredentialsError

# A secret has at most 128 characters.
MAX_CONTENT_BYTES: Final = 65_536
# gpg needs less than a second.
GPG_SECONDS: Final = 30.0

# Error codes of libgpg-error, in the lower 16 bits.
_BAD_PASSPHRASE: Final = 11
_NO_PASSPHRASE: Final = 177

_Ended: TypeAlias = "subprocess.CompletedProcess[bytes]"

_ANONYMOUS: Final = "0" * 16  # the id in a message that names no key (RFC 9580, section 5.1.1)
_SAVE_AGAIN: Final = (
    "Save it again, from BEGIN PGP MESSAGE to END PGP MESSAGE, or ask the portal's technical "
    "contact for a new one."
)


def decrypt(message: bytes, private_key: bytes, passphrase: str | None) -> bytes:
    """Return the content of the message.

    Message and key may be armoured or binary. Raises CredentialsError.
    """
    gpg = shutil.which("gpg")
    if gpg is None:
        raise CredentialsError(
            "gpg isn't installed. Install it: apt install gnupg. Or decrypt the message elsewhere, "
            "and name the file with the secret in LEADS_CLIENT_SECRET_FILE."
        )

    ended = None
    with suppress(OSError, subprocess.SubprocessError):  # the error may hold the content
        ended = _ask_gpg(gpg, message, private_key, passphrase)

    if ended is None:
        raise CredentialsError(
            "gpg can't be started, has no room for temporary files, or doesn't end within "
            f"{GPG_SECONDS:.0f} seconds."
        )

    imported, opened = ended
    _check_key(imported.stderr)

    # Both are needed: gpg 2.2 says DECRYPTION_OKAY of a damaged OCB message, and exits with 0 if
    # nothing was encrypted.
    if opened.returncode != 0 or b"\n[GNUPG:] DECRYPTION_OKAY" not in opened.stderr:
        raise CredentialsError(_why(opened.stderr.decode(errors="replace")))

    return opened.stdout


def _ask_gpg(
    gpg: str, message: bytes, private_key: bytes, passphrase: str | None
) -> tuple[_Ended, _Ended]:
    """Import the key, then decrypt the message. Raises OSError or SubprocessError."""
    # In memory if possible. A longer path would not fit into the name of the agent's socket.
    place = next((folder for folder in ("/dev/shm", "/tmp") if os.access(folder, os.W_OK)), None)  # noqa: S108
    with tempfile.TemporaryDirectory(
        prefix="leads-pgp-", dir=place, ignore_cleanup_errors=True
    ) as home:
        # Without the first line, the agent measures for seconds how fast the machine is.
        Path(home, "gpg-agent.conf").write_text(
            "s2k-count 65536\ndisable-scdaemon\n", encoding="ascii"
        )
        command = [
            gpg,
            "--homedir",
            home,
            "--batch",
            "--no-tty",
            "--trust-model",
            "always",
            "--status-fd",
            "2",
        ]
        read_end, write_end = os.pipe()  # other users can read a command line, but no pipe
        try:
            with os.fdopen(write_end, "wb") as pipe:
                pipe.write((passphrase or "").encode())
            imported = _run([*command, "--import"], private_key)
            words = ["--pinentry-mode", "loopback", "--passphrase-fd", str(read_end)]
            # A signature isn't looked at: the portal's key isn't known here.
            limits = ["--max-output", str(MAX_CONTENT_BYTES), "--skip-verify"]
            return imported, _run([*command, *words, *limits, "--decrypt"], message, read_end)
        finally:
            os.close(read_end)
            # The agent ends by itself too, but later.
            with suppress(OSError, subprocess.SubprocessError):
                _run([str(Path(gpg).with_name("gpgconf")), "--homedir", home, "--kill", "all"], b"")


def _check_key(status: bytes) -> None:
    found = re.search(rb"^\[GNUPG:\] IMPORT_RES((?: \d+)+)", status, re.MULTILINE)
    counts = [int(count) for count in found[1].split()] if found else [0] * 11
    if counts[10] == 0:  # private keys imported
        is_public = counts[0] > counts[9]  # keys and private keys read
        what = (
            "holds a public key"
            if is_public
            else "holds no private key, is not whole, or gpg-agent is missing here"
        )
        raise CredentialsError(
            f"The private key file {what}. Export the private key: gpg --armor "
            "--export-secret-keys KEYID"
        )


def _why(status: str) -> str:
    """Say why the message doesn't open, by gpg's status lines."""
    named = re.findall(r"^\[GNUPG:\] ENC_TO (\w+)", status, re.MULTILINE)
    codes = {
        int(code) & 0xFFFF
        for code in re.findall(r"^\[GNUPG:\] ERROR pkdecrypt_failed (\d+)", status, re.MULTILINE)
    }

    if _BAD_PASSPHRASE in codes:
        return (
            "The passphrase doesn't open the private key. Correct LEADS_PGP_PASSPHRASE or its "
            "_FILE. A lost passphrase can't be recovered: make a new key, and send its public half "
            "to the portal's technical contact."
        )
    if _NO_PASSPHRASE in codes:
        return (
            "The private key is locked, and no passphrase is set. Set LEADS_PGP_PASSPHRASE or its "
            "_FILE."
        )
    if not named:
        return f"The message is no PGP message for a public key, or is not whole. {_SAVE_AGAIN}"
    if "[GNUPG:] DECRYPTION_KEY" in status or "[GNUPG:] NO_SECKEY" not in status:
        return f"The message was altered or cut on its way. {_SAVE_AGAIN}"
    if named == [_ANONYMOUS]:  # gpg doesn't say then that it was the passphrase
        return (
            "The message names no key, and this private key with this passphrase doesn't open it. "
            "Check both."
        )

    return (
        f"The message is for another key: it names {', '.join(named)}. Name the private key that "
        "belongs to the public key you sent, or ask the portal's technical contact for a message "
        "for this key."
    )


def _run(command: Sequence[str], given: bytes, *pipes: int) -> _Ended:
    environment = {"PATH": os.defpath, "LC_ALL": "C"}  # none of our secrets
    return subprocess.run(  # noqa: S603 - gpg and its tools, with nothing of the message in the command
        command,
        input=given,
        capture_output=True,
        pass_fds=pipes,
        env=environment,
        timeout=GPG_SECONDS,
        check=False,
    )

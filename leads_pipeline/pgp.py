"""Opening OpenPGP messages with a private key, and making key pairs to receive them.

Belongs here: bytes in, bytes out, and clear words for why a message doesn't open. Doesn't: files, caching
(credentials.py), or what the message holds. The only user of pysequoia, whose errors carry backtraces, and of gpg,
which is given what pysequoia can't open.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pysequoia
from pysequoia.packet import Packet, PacketPile, Tag

from leads_pipeline.errors import CredentialsError

# What the portal asks for. Others, as in tests, are faster to make: this one takes 5 to 60 seconds.
RSA_4096 = pysequoia.CipherSuite.RSA4k

_SUBKEYS = (Tag.SecretSubkey, Tag.PublicSubkey)
_SAVE_AGAIN = "Save it again, whole, from BEGIN PGP MESSAGE to END PGP MESSAGE."
_ASK_CONTACT = "ask the portal's technical contact for a new message"

# What a message may hold: a secret has 128 characters. And how long gpg may take: it takes less than a second.
MAX_CONTENT_BYTES = 65_536
GPG_SECONDS = 30.0

T = TypeVar("T")


def decrypt(message: bytes, private_key: bytes, passphrase: str | None) -> bytes:
    """What the message holds; all three as their files hold them, armoured or binary. Takes about 0.4 seconds.

    The private key is one that gpg exports, or one that `new_key_pair` made. Raises CredentialsError.
    """
    addressees = set(_addressees(message))
    key = _unsealed(private_key, passphrase)
    # pysequoia tries the newest encryption subkey alone; an older one may be meant.
    packets = list(_for_addressees(_key_packets(key), addressees))
    recipients = {packet.key_id for packet in packets if packet.key_id}
    if not addressees & recipients and _ANONYMOUS not in addressees:
        raise CredentialsError(
            f"The message is for another key: it names {', '.join(sorted(addressees))}, which this private key doesn't "
            f"hold. Name the private key that belongs to the public key you sent, or {_ASK_CONTACT} for this key."
        )
    decryptor = _decryptor(packets, passphrase)
    content = None
    if decryptor is not None:
        with suppress(_Refusal):
            content = _ask(lambda: pysequoia.decrypt(bytes=message, decryptor=decryptor).bytes)
    if content is None:
        # GnuPG's own mode; a subkey's message where the key itself can decrypt too and is the only one tried; or a key
        # that GnuPG 2.4 has locked, whose numbers it writes in a form of its own.
        content = _decrypt_with_gpg(message, key, passphrase)
    if content is None:
        raise CredentialsError(_still_locked() if decryptor is None else _altered(message))
    return content


def new_key_pair(user_id: str, passphrase: str, suite: pysequoia.CipherSuite = RSA_4096) -> tuple[bytes, str]:
    """A private key, sealed with the passphrase, and the public half to send, both armoured. Never expires.

    The private key is sealed as a PGP message as a whole, since pysequoia can't lock a key by itself. `gpg --decrypt`
    opens it as well.
    """
    key = pysequoia.Tsk.generate(user_id, cipher_suite=suite)
    return pysequoia.encrypt(passwords=[passphrase], bytes=str(key).encode()), str(key.extract_certificate())


# The key id in a message that doesn't say for whom it is (RFC 9580, section 5.1.1; gpg --hidden-recipient).
_ANONYMOUS = "0" * 16


def _addressees(message: bytes) -> Iterator[str]:
    """The ids of the keys that the message is encrypted for. Raises CredentialsError if it is no such message."""
    packets = _packets(message)
    if not packets:
        is_begun = b"-----BEGIN PGP MESSAGE-----" in message
        what = "is not whole, or is damaged" if is_begun else "is no PGP message"
        raise CredentialsError(f"The message {what}. {_SAVE_AGAIN}")
    if all(packet.tag != Tag.PKESK for packet in packets):
        raise CredentialsError(
            "The message is not encrypted for a public key. Save the one that came for the public key you sent."
        )
    for packet in packets:
        if packet.tag == Tag.PKESK:
            yield _key_id(packet.body)


def _key_id(session_key: bytes) -> str:
    """Whom an encrypted session key packet is for: version 3 holds the key's id, version 6 its fingerprint.

    The id is the end of a fingerprint of version 4, and the beginning of one of version 6 (RFC 9580, section 5.5.4).
    """
    if session_key.startswith(b"\x03"):
        return session_key[1:9].hex()
    end = 2 + int.from_bytes(session_key[1:2])
    version, fingerprint = session_key[2:3], session_key[3:end]
    if not fingerprint:
        return _ANONYMOUS
    return (fingerprint[-8:] if version == b"\x04" else fingerprint[:8]).hex()


def _unsealed(private_key: bytes, passphrase: str | None) -> bytes:
    """The key itself, where it is one that `new_key_pair` made."""
    packets = _packets(private_key)
    if not packets or packets[0].tag != Tag.SKESK:
        return private_key
    if passphrase is None:
        raise CredentialsError(_LOCKED)
    try:
        return _ask(lambda: pysequoia.decrypt(bytes=private_key, passwords=[passphrase]).bytes) or b""
    except _Refusal:
        pass
    raise CredentialsError(_STILL_LOCKED)


def _key_packets(key: bytes) -> list[Packet]:
    packets = _packets(key)
    tags = [packet.tag for packet in packets]
    count = tags.count(Tag.SecretKey)
    if count == 1:
        return packets
    what = "several keys" if count else "a public key" if Tag.PublicKey in tags else "no private key, or not whole"
    raise CredentialsError(
        f"The private key file holds {what}. Export the one private key with `gpg --armor --export-secret-keys KEYID`."
    )


def _for_addressees(packets: Iterable[Packet], addressees: set[str]) -> Iterator[Packet]:
    """The key without subkeys that the message isn't for, each with the signatures that follow it."""
    is_meant = True
    for packet in packets:
        if packet.tag in _SUBKEYS:
            is_meant = packet.key_id in addressees or _ANONYMOUS in addressees
        if is_meant:
            yield packet


def _altered(message: bytes) -> str:
    """Why a message that is for this key doesn't open."""
    is_gpgs_own = any(packet.tag == Tag.AED for packet in _packets(message))
    if shutil.which("gpg") is not None:
        what = "was altered or damaged on its way: gpg can't open it either"
    elif is_gpgs_own:
        what = "is in a mode that is GnuPG's own (OCB), which gpg opens, and gpg isn't installed here"
    else:
        what = "was altered or damaged on its way, or takes gpg to open, which isn't installed here"
    return f"The message {what}. {_SAVE_AGAIN} Else install GnuPG, or {_ASK_CONTACT}, encrypted with `gpg --rfc4880`."


def _decrypt_with_gpg(message: bytes, key: bytes, passphrase: str | None) -> bytes | None:
    """What gpg makes of the message, None where it isn't installed or can't open it."""
    gpg = shutil.which("gpg")
    if gpg is None:
        return None
    # In memory where there is such a place, for this user alone (0700), and gone afterwards.
    memory = Path("/dev/shm")  # noqa: S108 - mkdtemp makes a folder of our own in it
    where = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="leads-pgp-", dir=where, ignore_cleanup_errors=True) as home:
        command = [gpg, "--homedir", home, "--batch", "--quiet", "--no-tty", "--trust-model", "always"]
        try:
            _run([*command, "--import"], key)
            with _piped(passphrase or "") as pipe:
                words = ["--pinentry-mode", "loopback", "--passphrase-fd", str(pipe)]
                limit = ["--max-output", str(MAX_CONTENT_BYTES)]
                return _run([*command, *words, *limit, "--decrypt"], message, pipe)
        except (OSError, subprocess.SubprocessError):
            return None
        finally:
            with suppress(OSError, subprocess.SubprocessError):  # gpg's agent, which goes by itself too, but later
                _run([str(Path(gpg).with_name("gpgconf")), "--homedir", home, "--kill", "all"], b"")


def _run(command: Sequence[str], given: bytes, *pipes: int) -> bytes:
    """What gpg prints. Raises SubprocessError where it fails or takes too long; what it says isn't shown to anybody."""
    return subprocess.run(  # noqa: S603 - gpg and its tools, without anything of the message in the command
        command,
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=pipes,
        env={"PATH": os.defpath, "LC_ALL": "C"},  # and none of our secrets
        timeout=GPG_SECONDS,
        check=True,
    ).stdout


@contextmanager
def _piped(text: str) -> Iterator[int]:
    """The end to read from of a pipe that holds the text: other users see a command line, and nobody sees a pipe."""
    read_end, write_end = os.pipe()
    try:
        with os.fdopen(write_end, "wb") as pipe:
            pipe.write(text.encode())
        yield read_end
    finally:
        os.close(read_end)


_LOCKED = "The private key is locked, and no passphrase is set. Set LEADS_PGP_PASSPHRASE or its _FILE."
_STILL_LOCKED = (
    "The passphrase doesn't open the private key. Correct LEADS_PGP_PASSPHRASE or its _FILE. A lost passphrase can't "
    "be recovered: make a new key, and send its public half to the portal's technical contact."
)
_NOT_VALID = (
    "The private key can't decrypt today: it has expired or is revoked, or it is for signing only. Extend one that has "
    "expired with `gpg --quick-set-expire FINGERPRINT never` and again with '*' at the end, and export it again."
)


def _still_locked() -> str:
    if shutil.which("gpg") is not None:
        return _STILL_LOCKED
    return f"{_STILL_LOCKED} If it is the right one: a key that GnuPG 2.4 made takes gpg, which isn't installed here."


def _decryptor(packets: list[Packet], passphrase: str | None) -> pysequoia.PyDecryptor | None:
    """What opens messages with that key; None where the passphrase doesn't open it for pysequoia."""
    try:
        key = _ask(lambda: pysequoia.Tsk.from_packets(packets))
        return _ask(key.decryptor)
    except _Refusal as refusal:
        is_locked = "encrypted" in str(refusal)
    if not is_locked:
        raise CredentialsError(_NOT_VALID)
    if passphrase is None:
        raise CredentialsError(_LOCKED)
    try:
        return _ask(lambda: key.decryptor(passphrase))
    except _Refusal:
        return None


class _Refusal(Exception):  # noqa: N818 - never leaves this module
    """The first line of pysequoia's message."""


def _packets(content: bytes) -> list[Packet]:
    """What the content is made of; nothing where it is no OpenPGP, or cut short."""
    try:
        return _ask(lambda: [packet for packet in PacketPile.from_bytes(content) if packet.tag])  # raises if unknown
    except _Refusal:
        return []


def _ask(act: Callable[[], T]) -> T:
    try:
        return act()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic in Rust is no Exception
        message = str(error).partition("\n")[0]
    raise _Refusal(message)  # outside of the except block: the cause carries a backtrace

import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from traceback import format_exception

import pysequoia
import pytest
from pysequoia.packet import PacketPile

from leads_pipeline import pgp
from leads_pipeline.errors import CredentialsError
from leads_pipeline_tests.gpg import PASSPHRASE, Gpg, needs_gpg, running_gpg
from leads_pipeline_tests.newcomer import wait_for

CANARY = b"canary-5Ecr3t-b:%+ c"
FAST = pysequoia.CipherSuite.Cv25519


@pytest.fixture(scope="module")
def gpg() -> Iterator[Gpg]:
    with running_gpg() as gpg:
        yield gpg


@pytest.fixture(scope="module")
def key(gpg: Gpg) -> bytes:
    return gpg.make_key("agency")


@pytest.fixture(scope="module")
def other_key(gpg: Gpg) -> bytes:
    return gpg.make_key("other")


@pytest.fixture(scope="module")
def message(gpg: Gpg, key: bytes) -> bytes:
    assert key
    return gpg.encrypt(CANARY, "agency")


def refusal(message: bytes, key: bytes, passphrase: str | None = PASSPHRASE) -> str:
    """What is said; held against everything that must not be."""
    with pytest.raises(CredentialsError) as caught:
        pgp.decrypt(message, key, passphrase)
    told = "".join(format_exception(caught.value))
    assert CANARY.decode() not in told
    assert PASSPHRASE not in told
    assert "Stack backtrace" not in told
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return str(caught.value)


@needs_gpg
def test_a_message_made_by_gpg_opens(message: bytes, key: bytes) -> None:
    assert pgp.decrypt(message, key, PASSPHRASE) == CANARY


@needs_gpg
def test_the_key_of_full_generate_key_with_rsa_4096_opens_its_message(gpg: Gpg, tmp_path: Path) -> None:
    answers = tmp_path / "answers"
    answers.write_text(
        "Key-Type: RSA\nKey-Length: 4096\nKey-Usage: cert,sign\nSubkey-Type: RSA\nSubkey-Length: 4096\n"
        "Subkey-Usage: encrypt\nName-Real: rsa\nName-Email: rsa@keys.example\nExpire-Date: 0\n"
        f"Passphrase: {PASSPHRASE}\n"
    )
    gpg.run("--full-generate-key", str(answers))
    key = gpg.run("--armor", "--export-secret-keys", "rsa@keys.example")
    assert pgp.decrypt(gpg.encrypt(CANARY, "rsa@keys.example"), key, PASSPHRASE) == CANARY


@needs_gpg
def test_the_mail_around_the_message_and_its_line_breaks_do_not_matter(message: bytes, key: bytes) -> None:
    mail = b"Dear all,\r\nclient_id: abc\r\n\r\n" + message.replace(b"\n", b"\r\n") + b"\r\nregards\r\n"
    assert pgp.decrypt(mail, key, PASSPHRASE) == CANARY


@needs_gpg
@pytest.mark.parametrize("options", [(), ("--throw-keyids",), ("--sign", "--local-user", "other")])
def test_a_message_for_several_for_nobody_named_and_a_signed_one_open(
    gpg: Gpg, key: bytes, other_key: bytes, options: tuple[str, ...]
) -> None:
    message = gpg.encrypt(CANARY, "other", "agency", options=options)
    assert pgp.decrypt(message, key, PASSPHRASE) == pgp.decrypt(message, other_key, PASSPHRASE) == CANARY


@needs_gpg
def test_a_binary_export_and_a_key_without_passphrase_open_too(gpg: Gpg, key: bytes, message: bytes) -> None:
    assert key
    assert pgp.decrypt(message, gpg.run("--export-secret-keys", "agency"), PASSPHRASE) == CANARY
    bare = gpg.make_key("bare", passphrase="")
    for passphrase in (None, PASSPHRASE):
        assert pgp.decrypt(gpg.encrypt(CANARY, "bare"), bare, passphrase) == CANARY


@needs_gpg
def test_a_message_for_an_older_subkey_opens(gpg: Gpg) -> None:
    then = ("--faked-system-time", "20200101T000000")
    gpg.run(*then, "--quick-generate-key", "rotated", "future-default", "default", "never")
    message = gpg.encrypt(CANARY, "rotated")
    listed = gpg.run("--list-keys", "--with-colons", "rotated").decode()
    fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr"))
    gpg.run("--quick-add-key", fingerprint, "cv25519", "encr", "never")
    private_key = gpg.run("--export-secret-keys", "rotated")
    assert pgp.decrypt(message, private_key, PASSPHRASE) == CANARY
    assert pgp.decrypt(gpg.encrypt(CANARY, "rotated"), private_key, PASSPHRASE) == CANARY


@needs_gpg
def test_a_wrong_passphrase_is_told(message: bytes, key: bytes) -> None:
    assert "The passphrase doesn't open the private key" in refusal(message, key, "wrong")
    assert "The passphrase doesn't open the private key" in refusal(message, key, "")
    assert "no passphrase is set" in refusal(message, key, None)


@needs_gpg
def test_a_wrong_key_is_told_with_the_id_that_the_message_names(message: bytes, other_key: bytes) -> None:
    told = refusal(message, other_key)
    assert "is for another key" in told
    (session_key, _) = list(PacketPile.from_bytes(message))
    assert session_key.body[1:9].hex() in told


@needs_gpg
def test_a_message_cut_short_anywhere_is_told(message: bytes, key: bytes) -> None:
    body = message.rstrip().removesuffix(b"-----END PGP MESSAGE-----").rstrip()
    # The last line is the checksum, `=` and four letters; what stands before it is needed to the last letter.
    needed = len(body) - 6
    for beginning in (b"", message[:10], message[:26], b"\xca\x03PGP\xd0\x01\x00", b"client_secret: abc\n"):
        assert "is no PGP message" in refusal(beginning, key)
    for length in range(40, needed - 1, 13):
        assert "is not whole" in refusal(message[:length], key)
        assert "is not whole" in refusal(message[:length] + b"\n-----END PGP MESSAGE-----\n", key)


@needs_gpg
@pytest.mark.parametrize("with_gpg", [False, True])
def test_an_altered_message_never_opens(gpg: Gpg, with_gpg: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not with_gpg:
        monkeypatch.setattr("shutil.which", lambda _: None)
    name = f"plain-{with_gpg}"
    key = gpg.make_key(name, passphrase="")  # without a passphrase, opening takes a millisecond
    message = gpg.encrypt(CANARY, name)
    *_, sealed = PacketPile.from_bytes(message)
    raw = dearmored(message)
    for place in range(len(raw) - len(sealed.body) + 1, len(raw), 40 if with_gpg else 1):
        altered = raw[:place] + bytes([raw[place] ^ 0x20]) + raw[place + 1 :]
        assert "was altered or damaged" in refusal(altered, key)
    assert pgp.decrypt(raw, key, None) == CANARY


def dearmored(message: bytes) -> bytes:
    return b"".join(bytes(packet) for packet in PacketPile.from_bytes(message))


@needs_gpg
def test_what_is_not_encrypted_for_a_key_is_told(gpg: Gpg, key: bytes) -> None:
    for message in (gpg.run("--armor", "--store", given=CANARY), gpg.run("--armor", "--symmetric", given=CANARY), key):
        assert "is not encrypted for a public key" in refusal(message, key)


def in_gnupgs_own_mode(gpg: Gpg, message: bytes, passphrase: str = PASSPHRASE) -> bytes:
    """The message's content as gpg 2.4 encrypts it between two of its own keys: gpg 2.2 can read that, not write it.

    An OCB encrypted data packet (draft-koch-librepgp, section 5.16) with the session key of the message given.
    """
    command = ["gpg", "--homedir", str(gpg.home), "--batch", "--pinentry-mode", "loopback"]
    command += ["--passphrase", passphrase, "--show-session-key", "--decrypt"]
    said = subprocess.run(command, input=message, capture_output=True, check=True).stderr
    algorithm, key = re.findall(r"session key: '(\d+):([0-9A-F]+)'", said.decode())[0]
    head = bytes([0xC0 | 20, 1, int(algorithm), 2, 10])  # version, cipher, OCB, chunks of 64 kB
    literal = bytes([0xC0 | 11, 6 + len(CANARY)]) + b"b" + bytes(5) + CANARY
    aead = pytest.importorskip("cryptography.hazmat.primitives.ciphers.aead")  # other packages bring it
    nonce, cipher = os.urandom(15), aead.AESOCB3(bytes.fromhex(key))
    last = nonce[:-1] + bytes([nonce[-1] ^ 1])
    chunk = cipher.encrypt(nonce, literal, head + (0).to_bytes(8))
    seal = cipher.encrypt(last, b"", head + (1).to_bytes(8) + len(literal).to_bytes(8))
    body: bytes = head[1:] + nonce + chunk + seal
    session_key, _ = PacketPile.from_bytes(message)
    return bytes(session_key) + head[:1] + b"\xff" + len(body).to_bytes(4) + body


def for_a_subkey_of_a_key_that_can_decrypt_too(gpg: Gpg, name: str) -> tuple[bytes, bytes]:
    """The key, and a message for its subkey."""
    gpg.run("--quick-generate-key", name, "rsa2048", "cert,sign,encr", "never")
    fingerprint = next(
        line.split(":")[9]
        for line in gpg.run("--list-keys", "--with-colons", name).decode().splitlines()
        if line.startswith("fpr")
    )
    gpg.run("--quick-add-key", fingerprint, "rsa2048", "encr", "never")
    key, message = gpg.run("--armor", "--export-secret-keys", name), gpg.encrypt(CANARY, name)
    meant = next(packet.body[1:9].hex() for packet in PacketPile.from_bytes(message))
    assert not fingerprint.lower().endswith(meant)
    return key, message


@pytest.fixture
def what_gpg_leaves(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The folders that gpg was given; none of them, and no agent for it, may be there afterwards."""
    homes: list[str] = []
    real = pgp._run  # noqa: SLF001 - to look on

    def run(command: Sequence[str], given: bytes, *pipes: int) -> bytes:
        home = command[command.index("--homedir") + 1]
        assert stat.S_IMODE(Path(home).stat().st_mode) == 0o700
        assert not any(PASSPHRASE in word or CANARY.decode() in word for word in command)
        homes.append(home)
        return real(command, given, *pipes)

    def is_of_gpg(process: Path) -> bool:
        try:
            return any(home.encode() in process.read_bytes() for home in homes)
        except OSError:  # it has ended meanwhile
            return False

    monkeypatch.setattr(pgp, "_run", run)
    yield homes
    assert not any(Path(home).exists() for home in homes)
    wait_for(lambda: not any(map(is_of_gpg, Path("/proc").glob("[0-9]*/cmdline"))))


@needs_gpg
def test_a_message_in_gnupgs_own_mode_opens(
    gpg: Gpg, message: bytes, key: bytes, other_key: bytes, what_gpg_leaves: list[str]
) -> None:
    ocb = in_gnupgs_own_mode(gpg, message)
    assert pgp.decrypt(ocb, key, PASSPHRASE) == CANARY
    assert what_gpg_leaves
    assert "The passphrase doesn't open" in refusal(ocb, key, "wrong")
    assert "is for another key" in refusal(ocb, other_key)
    assert "gpg can't open it either" in refusal(ocb[:-1] + bytes([ocb[-1] ^ 1]), key)


# Made by GnuPG 2.4.7 for these tests alone (gpg_2_4/README.md): Debian 12's gpg can write neither.
MADE_BY_GPG_2_4 = Path(__file__).parent / "gpg_2_4"


@needs_gpg
@pytest.mark.parametrize("mode", ["ocb", "mdc"])
def test_a_message_and_a_locked_key_that_gpg_2_4_made_open(
    mode: str, what_gpg_leaves: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = (MADE_BY_GPG_2_4 / "worthless_test_key.asc").read_bytes()
    message = (MADE_BY_GPG_2_4 / f"{mode}_message.asc").read_bytes()
    assert pgp.decrypt(message, key, "worthless") == b"opened"
    assert what_gpg_leaves
    assert "The passphrase doesn't open" in refusal(message, key, "wrong")
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert "a key that GnuPG 2.4 made takes gpg, which isn't installed here" in refusal(message, key, "worthless")


@needs_gpg
def test_a_message_in_gnupgs_own_mode_opens_with_a_key_that_new_key_made(gpg: Gpg, what_gpg_leaves: list[str]) -> None:
    private, public = pgp.new_key_pair("own-mode", PASSPHRASE, FAST)
    gpg.run("--import", given=public.encode())
    gpg.run("--import", given=gpg.run("--decrypt", given=private))
    assert pgp.decrypt(in_gnupgs_own_mode(gpg, gpg.encrypt(CANARY, "own-mode")), private, PASSPHRASE) == CANARY
    assert what_gpg_leaves


@needs_gpg
def test_a_message_for_a_subkey_opens_where_the_key_itself_can_decrypt_too(
    gpg: Gpg, what_gpg_leaves: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key, message = for_a_subkey_of_a_key_that_can_decrypt_too(gpg, "both")
    assert pgp.decrypt(message, key, PASSPHRASE) == CANARY
    assert what_gpg_leaves
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert "or takes gpg to open, which isn't installed here" in refusal(message, key)


@needs_gpg
def test_a_message_for_the_key_itself_opens_where_a_subkey_can_decrypt_too(
    gpg: Gpg, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, _ = for_a_subkey_of_a_key_that_can_decrypt_too(gpg, "itself")
    listed = gpg.run("--list-keys", "--with-colons", "itself").decode().splitlines()
    fingerprint = next(line.split(":")[9] for line in listed if line.startswith("fpr"))
    message = gpg.encrypt(CANARY, f"{fingerprint}!")  # gpg's way to say: this key and none of its subkeys
    meant = next(packet.body[1:9].hex() for packet in PacketPile.from_bytes(message))
    assert fingerprint.lower().endswith(meant)
    assert pgp.decrypt(message, key, PASSPHRASE) == CANARY
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert pgp.decrypt(message, key, PASSPHRASE) == CANARY, "pysequoia opens it by itself"


@needs_gpg
def test_without_gpg_its_own_mode_is_told(
    gpg: Gpg, message: bytes, key: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    ocb = in_gnupgs_own_mode(gpg, message)
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert "GnuPG's own (OCB), which gpg opens, and gpg isn't installed here" in refusal(ocb, key)


@needs_gpg
def test_a_gpg_that_hangs_is_not_waited_for(
    gpg: Gpg, message: bytes, key: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ocb = in_gnupgs_own_mode(gpg, message)
    for name in ("gpg", "gpgconf"):
        (tmp_path / name).write_text("#!/bin/sh\nexec sleep 60\n")
        (tmp_path / name).chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(pgp, "GPG_SECONDS", 0.2)
    began = time.monotonic()
    assert "gpg can't open it either" in refusal(ocb, key)
    assert time.monotonic() - began < 30


@needs_gpg
def test_what_is_no_private_key_is_told(gpg: Gpg, message: bytes, key: bytes) -> None:
    assert "holds a public key" in refusal(message, gpg.run("--armor", "--export", "agency"))
    assert "holds several keys" in refusal(message, gpg.run("--armor", "--export-secret-keys"))
    for content in (b"", b"hello", key[:300], message):
        assert "holds no private key, or not whole" in refusal(message, content)


@needs_gpg
def test_a_key_that_has_expired_is_told(gpg: Gpg) -> None:
    then = ("--faked-system-time", "20200101T000000")
    gpg.run(*then, "--quick-generate-key", "expired", "future-default", "default", "1y")
    message = gpg.encrypt(CANARY, "expired", options=then)
    assert "has expired" in refusal(message, gpg.run("--export-secret-keys", "expired"))


@needs_gpg
def test_gpg_encrypts_for_a_new_key_and_the_message_opens(gpg: Gpg) -> None:
    private, public = pgp.new_key_pair("new", PASSPHRASE, FAST)
    gpg.run("--import", given=public.encode())
    message = gpg.encrypt(CANARY, "new")
    assert pgp.decrypt(message, private, PASSPHRASE) == CANARY
    assert "The passphrase doesn't open" in refusal(message, private, "wrong")
    assert "no passphrase is set" in refusal(message, private, None)
    assert b"PRIVATE KEY" in gpg.run("--decrypt", given=private)  # its owner can open it without us
    assert b"PRIVATE KEY" not in private
    assert "PRIVATE" not in public


@pytest.mark.parametrize("profile", [pysequoia.Profile.RFC4880, pysequoia.Profile.RFC9580])
def test_a_message_of_the_newest_standard_opens(profile: pysequoia.Profile) -> None:
    key, other = (pysequoia.Tsk.generate(name, profile=profile) for name in ("agency", "other"))
    message = pysequoia.encrypt(recipients=[key.extract_certificate()], bytes=CANARY)
    session_key, *_ = PacketPile.from_bytes(message)
    assert session_key.body[0] == 6  # RFC 9580, section 5.1.2; gpg 2.2 writes version 3
    assert pgp.decrypt(message, str(key).encode(), None) == CANARY
    assert "is for another key" in refusal(message, str(other).encode(), None)


@pytest.mark.chaos
@needs_gpg
def test_a_new_key_is_rsa_with_4096_bits(gpg: Gpg) -> None:
    private, public = pgp.new_key_pair("large", PASSPHRASE)
    gpg.run("--import", given=public.encode())
    listed = gpg.run("--list-keys", "--with-colons", "large").decode().splitlines()
    assert {tuple(line.split(":")[2:4]) for line in listed if line.startswith(("pub", "sub"))} == {("4096", "1")}
    assert pgp.decrypt(gpg.encrypt(CANARY, "large"), private, PASSPHRASE) == CANARY


def test_a_panic_of_the_library_is_a_refusal_and_an_interrupt_is_not() -> None:
    class PanicException(BaseException):
        pass

    def panic() -> None:
        raise PanicException("called unwrap\n\nStack backtrace: ...")

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(pgp._Refusal, match=r"^called unwrap$") as caught:  # noqa: SLF001 - no input is known to panic
        pgp._ask(panic)  # noqa: SLF001
    assert caught.value.__context__ is None
    with pytest.raises(KeyboardInterrupt):
        pgp._ask(interrupt)  # noqa: SLF001


@needs_gpg
def test_nothing_is_printed_when_a_message_does_not_open(message: bytes, key: bytes) -> None:
    """Rust's panics print by themselves, past Python."""
    script = (
        "import sys\nfrom leads_pipeline import pgp\nfrom leads_pipeline.errors import CredentialsError\n"
        "message, key = sys.stdin.buffer.read().split(b'|')\n"
        "for size in range(0, len(message), 50):\n"
        "    try: pgp.decrypt(message[:size], key, 'wrong')\n"
        "    except CredentialsError: pass\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], input=message + b"|" + key, capture_output=True, check=True)
    assert (ended.stdout, ended.stderr) == (b"", b"")

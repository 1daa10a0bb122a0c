import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from traceback import format_exception

import pysequoia
import pytest
from pysequoia.packet import PacketPile

from leads_pipeline import pgp
from leads_pipeline.errors import CredentialsError
from leads_pipeline_tests.gpg import PASSPHRASE, Gpg, needs_gpg, running_gpg

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
def test_an_altered_message_never_opens(gpg: Gpg) -> None:
    key = gpg.make_key("plain", passphrase="")  # without a passphrase, opening takes a millisecond
    message = gpg.encrypt(CANARY, "plain")
    *_, sealed = PacketPile.from_bytes(message)
    raw = dearmored(message)
    for place in range(len(raw) - len(sealed.body) + 1, len(raw)):
        altered = raw[:place] + bytes([raw[place] ^ 0x20]) + raw[place + 1 :]
        assert "was altered or damaged" in refusal(altered, key)
    assert pgp.decrypt(raw, key, None) == CANARY


def dearmored(message: bytes) -> bytes:
    return b"".join(bytes(packet) for packet in PacketPile.from_bytes(message))


@needs_gpg
def test_what_is_not_encrypted_for_a_key_is_told(gpg: Gpg, key: bytes) -> None:
    for message in (gpg.run("--armor", "--store", given=CANARY), gpg.run("--armor", "--symmetric", given=CANARY), key):
        assert "is not encrypted for a public key" in refusal(message, key)


@needs_gpg
def test_gnupgs_own_mode_is_told(message: bytes, key: bytes) -> None:
    session_key, sealed = PacketPile.from_bytes(message)
    assert bytes(sealed)[0] == 0xC0 | 18
    # Packet 20, as gpg 2.4 writes it between two of its own keys; gpg 2.2 can't.
    ocb = bytes(session_key) + bytes([0xC0 | 20]) + bytes(sealed)[1:]
    assert "gpg --rfc4880" in refusal(ocb, key)


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
    ended = subprocess.run([sys.executable, "-c", script], input=message + b"|" + key, capture_output=True, check=True)  # noqa: S603
    assert (ended.stdout, ended.stderr) == (b"", b"")

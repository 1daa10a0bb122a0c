"""PGP messages of the real gpg: which open, what is said of the others, and what gpg leaves behind."""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from traceback import format_exception

import pytest

from leads_pipeline.errors import CredentialsError
from leads_pipeline.portal import pgp
from leads_pipeline_tests.support.gpg import PASSPHRASE, Gpg, needs_gpg
from leads_pipeline_tests.support.newcomer import wait_for

CANARY = b"canary-5Ecr3t-b:%+ c"

pytestmark = needs_gpg


@pytest.fixture(scope="module")
def message(gpg: Gpg, key: bytes) -> bytes:
    assert key
    return gpg.encrypt(CANARY, "agency")


def refusal(message: bytes, key: bytes, passphrase: str | None = PASSPHRASE) -> str:
    """What is said, which shows neither the secret nor the passphrase."""
    with pytest.raises(CredentialsError) as caught:
        pgp.decrypt(message, key, passphrase)
    told = "".join(format_exception(caught.value))
    assert CANARY.decode() not in told
    assert PASSPHRASE not in told
    assert caught.value.__context__ is None
    return str(caught.value)


# --- what opens -----------------------------------------------------------------------------------


def test_a_message_opens_with_an_armoured_and_a_binary_key_and_with_a_mail_around_it(
    gpg: Gpg, message: bytes, key: bytes
) -> None:
    binary_key = gpg.run("--export-secret-keys", "agency")
    mail = b"Dear all,\r\n\r\n" + message.replace(b"\n", b"\r\n") + b"\r\nregards\r\n"

    assert pgp.decrypt(message, key, PASSPHRASE) == CANARY
    assert pgp.decrypt(message, binary_key, PASSPHRASE) == CANARY
    assert pgp.decrypt(mail, key, PASSPHRASE) == CANARY


def test_a_key_without_passphrase_opens_its_message(gpg: Gpg) -> None:
    bare = gpg.make_key("bare", passphrase="")
    message = gpg.encrypt(CANARY, "bare")

    assert pgp.decrypt(message, bare, None) == CANARY


# Made by GnuPG 2.4.7 for these tests alone (gpg_2_4/README.md). Debian 12's gpg reads both modes
# and can't write OCB.
MADE_BY_GPG_2_4 = Path(__file__).parent / "gpg_2_4"


@pytest.mark.parametrize("mode", ["ocb", "mdc"])
def test_a_message_and_a_locked_key_that_gpg_2_4_made_open(mode: str) -> None:
    key = (MADE_BY_GPG_2_4 / "worthless_test_key.asc").read_bytes()
    message = (MADE_BY_GPG_2_4 / f"{mode}_message.asc").read_bytes()
    assert pgp.decrypt(message, key, "worthless") == b"opened"
    assert "The passphrase doesn't open the private key" in refusal(message, key, "wrong")


# --- what gpg sees and leaves ---------------------------------------------------------------------


def test_gpg_gets_no_secret_as_an_argument_and_nothing_of_it_is_left(
    message: bytes, key: bytes, tmp_path: Path
) -> None:
    """Other users can read the arguments of a process."""
    gpg = Path(shutil.which("gpg") or "")
    noting = tmp_path / "gpg"
    noting.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/arguments\nexec {gpg} "$@"\n')
    noting.chmod(0o700)
    (tmp_path / "gpgconf").symlink_to(gpg.with_name("gpgconf"))
    os.environ["PATH"] = f"{tmp_path}:{os.environ['PATH']}"

    pgp.decrypt(message, key, PASSPHRASE)

    arguments = (tmp_path / "arguments").read_text()
    assert PASSPHRASE not in arguments
    assert CANARY.decode() not in arguments
    _, home, *_ = arguments.split()
    assert not Path(home).exists()
    wait_for(lambda: home not in command_lines())


def command_lines() -> str:
    """Those of all processes."""
    found = ""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            found += path.read_text(errors="replace")
    return found


# --- what is said of the others -------------------------------------------------------------------


def test_a_missing_gpg_is_told_with_both_ways_out(
    message: bytes, key: bytes, tmp_path: Path
) -> None:
    os.environ["PATH"] = str(tmp_path)
    told = refusal(message, key)
    assert "apt install gnupg" in told
    assert "LEADS_CLIENT_SECRET_FILE" in told


def test_each_cause_is_told_apart(gpg: Gpg, message: bytes, key: bytes) -> None:
    public_key = gpg.run("--armor", "--export", "agency")
    other_key = gpg.make_key("other")
    for_a_passphrase = gpg.run("--armor", "--symmetric", given=CANARY, passphrase="another")

    assert "The passphrase doesn't open the private key" in refusal(message, key, "wrong")
    assert "no passphrase is set" in refusal(message, key, None)
    assert "is for another key" in refusal(message, other_key)
    assert "holds a public key" in refusal(message, public_key)
    assert "holds no private key, is not whole" in refusal(message, key[:300])
    assert "is no PGP message for a public key" in refusal(for_a_passphrase, key)


@pytest.mark.parametrize("mode", ["ocb", "mdc"])
def test_an_altered_message_never_opens(gpg: Gpg, mode: str) -> None:
    key = (MADE_BY_GPG_2_4 / "worthless_test_key.asc").read_bytes()
    raw = gpg.run("--dearmor", given=(MADE_BY_GPG_2_4 / f"{mode}_message.asc").read_bytes())
    assert pgp.decrypt(raw, key, "worthless") == b"opened"
    for place in range(100, len(raw), 100):
        altered = raw[:place] + bytes([raw[place] ^ 0x20]) + raw[place + 1 :]
        assert "altered or cut on its way" in refusal(altered, key, "worthless")

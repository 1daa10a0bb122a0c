import os
from pathlib import Path

import pytest

from leads_pipeline.errors import CredentialsError
from leads_pipeline.portal.credentials import (
    MAX_SECRET_BYTES,
    PgpSecret,
    read_secret,
)
from leads_pipeline.settings import Secret
from leads_pipeline_tests.support.gpg import PASSPHRASE, Gpg, needs_gpg

CANARY = "canary-5Ecr3t-b:%+ c"


def in_file(path: Path) -> Secret:
    return Secret("A_SECRET_FILE", file=path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "secret"


@pytest.mark.parametrize(
    ("content", "secret"),
    [
        (b"secret\r\n", "secret"),
        (b" a b \n", " a b "),
        (b"\xef\xbb\xbfsecr\xc3\xa8t", "secrèt"),
    ],
    ids=["one line break at its end", "spaces belong to it", "a byte order mark doesn't"],
)
def test_a_file_holds_a_secret_and_nothing_else(path: Path, content: bytes, secret: str) -> None:
    path.write_bytes(content)
    assert read_secret(in_file(path)) == secret


def test_a_file_is_read_once_a_process_but_an_error_is_not_remembered(path: Path) -> None:
    with pytest.raises(CredentialsError):
        read_secret(in_file(path))
    path.write_text("old\n")
    assert read_secret(in_file(path)) == "old"
    path.write_text("new\n")
    assert read_secret(in_file(path)) == "old"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (CANARY.encode() + "é".encode() * (MAX_SECRET_BYTES // 2), "holds more than"),
        (CANARY.encode() + b"\n\n", "line break"),
    ],
)
def test_a_file_that_holds_no_secret_is_told_apart(path: Path, content: bytes, words: str) -> None:
    path.write_bytes(content)
    with pytest.raises(CredentialsError, match=words) as caught:
        read_secret(in_file(path))
    assert CANARY not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_file_that_is_missing_or_would_be_waited_for_is_named(path: Path) -> None:
    with pytest.raises(CredentialsError, match="No such file or directory"):
        read_secret(in_file(path))
    os.mkfifo(path)
    with pytest.raises(CredentialsError, match="not a regular file"):
        read_secret(in_file(path))


def test_no_source_shows_its_secret(path: Path) -> None:
    path.write_text(CANARY)
    source = in_file(path)
    read_secret(source)

    assert CANARY not in f"{source} {source!r}"
    given = Secret("A_SECRET", CANARY)
    assert CANARY not in f"{given} {given!r}"


# --- a secret in a PGP message; test_pgp.py has the messages that don't open ----------------------


class Delivery:
    """A message, its private key and the passphrase, in files."""

    def __init__(self, folder: Path, gpg: Gpg, key: bytes) -> None:
        self.message = folder / "message.asc"
        self.key = folder / "key.asc"
        self.passphrase = folder / "passphrase"
        self._gpg = gpg
        self.key.write_bytes(key)
        self.passphrase.write_text(PASSPHRASE)
        self.deliver(CANARY)

    def deliver(self, secret: str) -> None:
        self.message.write_bytes(self._gpg.encrypt(secret.encode(), "agency"))

    @property
    def secret(self) -> PgpSecret:
        return PgpSecret(self.message, self.key, in_file(self.passphrase))


@pytest.fixture
def delivery(tmp_path: Path, gpg: Gpg, key: bytes) -> Delivery:
    return Delivery(tmp_path, gpg, key)


@needs_gpg
def test_a_secret_is_read_from_its_message_once_a_process(delivery: Delivery) -> None:
    assert read_secret(delivery.secret) == CANARY
    delivery.deliver("new-one")

    assert read_secret(delivery.secret) == CANARY


@needs_gpg
def test_a_message_that_holds_no_secret_alone_is_refused(delivery: Delivery) -> None:
    delivery.deliver(f"client_id: abc\nclient_secret: {CANARY}")
    with pytest.raises(CredentialsError, match=r"content of the PGP message .*message.asc") as told:
        read_secret(delivery.secret)
    assert CANARY not in str(told.value)


@needs_gpg
def test_an_error_of_pgp_names_the_files_and_is_not_remembered(delivery: Delivery) -> None:
    whole = delivery.message.read_bytes()
    delivery.message.write_bytes(whole[:100])

    with pytest.raises(CredentialsError) as caught:
        read_secret(delivery.secret)

    assert str(delivery.message) in str(caught.value)
    delivery.message.write_bytes(whole)
    assert read_secret(delivery.secret) == CANARY


@needs_gpg
def test_a_pgp_source_shows_neither_secret_nor_passphrase(delivery: Delivery) -> None:
    source = PgpSecret(delivery.message, delivery.key, Secret("A_SECRET", PASSPHRASE))
    assert read_secret(source) == CANARY

    assert CANARY not in repr(source)
    assert PASSPHRASE not in repr(source)

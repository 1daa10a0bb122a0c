import os
import stat
from pathlib import Path

import pysequoia
import pytest
from click.testing import CliRunner, Result

from leads_pipeline import pgp
from leads_pipeline.cli import main
from leads_pipeline.credentials import (
    MAX_PGP_BYTES,
    MAX_SECRET_BYTES,
    FileSecret,
    PgpSecret,
    SecretSource,
    StaticSecret,
    write_key_pair,
)
from leads_pipeline.errors import CredentialsError

CANARY = "canary-5Ecr3t-b:%+ c"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "secret"


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_secret_file_may_end_with_one_line_break(path: Path, ending: str) -> None:
    path.write_bytes(f"{CANARY}{ending}".encode())
    assert FileSecret(path).read() == CANARY


def test_spaces_belong_to_the_secret(path: Path) -> None:
    path.write_text(" a b \n")
    assert FileSecret(path).read() == " a b "
    assert StaticSecret(" a b ").read() == " a b "


def test_a_byte_order_mark_does_not_belong_to_the_secret(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbfsecr\xc3\xa8t\r\n")
    assert FileSecret(path).read() == "secrèt"


def test_a_replaced_file_is_read_anew(path: Path) -> None:
    path.write_text("old\n")
    source = FileSecret(path)
    assert source.read() == "old"
    path.write_text("new\n")
    assert source.read() == "new"


def test_a_secret_of_the_largest_size_is_read(path: Path) -> None:
    path.write_text("x" * MAX_SECRET_BYTES)
    assert len(FileSecret(path).read()) == MAX_SECRET_BYTES


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"  \n", "is empty"),
        (CANARY.encode() + b"x" * MAX_SECRET_BYTES, "holds more than"),
        (CANARY.encode() + "é".encode() * (MAX_SECRET_BYTES // 2), "holds more than"),
        (CANARY.encode() + b"\xff\xfe", "is not UTF-8"),
        (CANARY.encode("utf-16"), "is not UTF-8"),
        (CANARY.encode() + b"\n\n", "line break"),
        (b"-----BEGIN PGP MESSAGE-----\n" + CANARY.encode(), "line break"),
        (CANARY.encode() + b"\0", "control character"),
    ],
)
def test_a_file_that_holds_no_secret_is_told_apart(path: Path, content: bytes, words: str) -> None:
    path.write_bytes(content)
    with pytest.raises(CredentialsError, match=words) as caught:
        FileSecret(path).read()
    assert str(path) in str(caught.value)
    assert CANARY not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_missing_file_is_named(path: Path) -> None:
    with pytest.raises(CredentialsError, match=r"secret can't be read \(No such file or directory\)"):
        FileSecret(path).read()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_named(path: Path) -> None:
    path.write_text(CANARY)
    path.chmod(0)
    with pytest.raises(CredentialsError, match=r"can't be read \(Permission denied\)"):
        FileSecret(path).read()


def test_a_folder_or_a_pipe_is_refused_without_waiting(path: Path) -> None:
    with pytest.raises(CredentialsError, match="not a regular file"):
        FileSecret(path.parent).read()
    os.mkfifo(path)
    with pytest.raises(CredentialsError, match="not a regular file"):
        FileSecret(path).read()


@pytest.mark.parametrize("value", ["", " ", CANARY + "\n", CANARY + "\udcff"])
def test_a_value_that_can_not_be_a_secret_is_refused(value: str) -> None:
    with pytest.raises(CredentialsError) as caught:
        StaticSecret(value).read()
    assert CANARY not in str(caught.value)


def test_no_source_shows_its_secret(path: Path) -> None:
    path.write_text(CANARY)
    sources: list[SecretSource] = [StaticSecret(CANARY), FileSecret(path)]
    for source in sources:
        assert source.read() == CANARY
        assert CANARY not in f"{source} {source!r} {[source]}"


# --- a secret in a PGP message; test_pgp.py opens those of the real gpg -----------------------------------------------

PASSPHRASE = "hünter 22"


@pytest.fixture(autouse=True)
def fast_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """RSA with 4096 bits takes up to a minute."""
    made = pgp.new_key_pair
    fast = pysequoia.CipherSuite.Cv25519
    monkeypatch.setattr(pgp, "new_key_pair", lambda user_id, passphrase: made(user_id, passphrase, fast))


class Delivery:
    """A message, its private key and the passphrase, in files."""

    def __init__(self, folder: Path) -> None:
        self.message, self.key, self.passphrase = folder / "message.asc", folder / "key.asc", folder / "passphrase"
        self.renew_key()
        self.deliver(CANARY)

    def renew_key(self, passphrase: str = PASSPHRASE) -> None:
        self.key.unlink(missing_ok=True)
        self.public = pysequoia.Cert.from_bytes(write_key_pair("agency", passphrase, self.key).encode())
        self.passphrase.write_text(passphrase)

    def deliver(self, secret: str) -> None:
        self.message.write_bytes(pysequoia.encrypt(recipients=[self.public], bytes=secret.encode()))

    @property
    def secret(self) -> PgpSecret:
        return PgpSecret(self.message, self.key, FileSecret(self.passphrase))


@pytest.fixture
def delivery(tmp_path: Path) -> Delivery:
    return Delivery(tmp_path)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The messages that were decrypted."""
    messages: list[bytes] = []
    decrypt = pgp.decrypt

    def noted(message: bytes, private_key: bytes, passphrase: str | None) -> bytes:
        messages.append(message)
        return decrypt(message, private_key, passphrase)

    monkeypatch.setattr(pgp, "decrypt", noted)
    return messages


def test_a_secret_is_read_from_its_message(delivery: Delivery) -> None:
    assert delivery.secret.read() == CANARY
    assert PgpSecret(delivery.message, delivery.key, StaticSecret(PASSPHRASE)).read() == CANARY


def test_a_line_break_at_the_end_of_the_message_is_not_part_of_the_secret(delivery: Delivery) -> None:
    delivery.deliver(f"{CANARY}\n")
    assert delivery.secret.read() == CANARY


def test_a_message_is_opened_once_until_a_file_changes(delivery: Delivery, opened: list[bytes]) -> None:
    secret = delivery.secret
    assert [secret.read() for _ in range(5)] == [CANARY] * 5
    assert len(opened) == 1
    delivery.deliver("new-one")
    assert [secret.read() for _ in range(5)] == ["new-one"] * 5
    assert len(opened) == 2


def test_a_message_put_in_place_of_the_old_one_takes_effect(delivery: Delivery, tmp_path: Path) -> None:
    secret = delivery.secret
    assert secret.read() == CANARY
    old = delivery.message.stat()
    delivery.message = tmp_path / "beside"
    delivery.deliver(CANARY[::-1])
    os.utime(delivery.message, ns=(old.st_atime_ns, old.st_mtime_ns))
    delivery.message.replace(tmp_path / "message.asc")
    assert secret.read() == CANARY[::-1]


def test_a_new_key_and_passphrase_take_effect(delivery: Delivery) -> None:
    secret = delivery.secret
    assert secret.read() == CANARY
    delivery.renew_key("another")
    with pytest.raises(CredentialsError, match="is for another key"):
        secret.read()
    delivery.deliver("new-one")
    assert secret.read() == "new-one"
    delivery.passphrase.write_text("wrong")
    with pytest.raises(CredentialsError, match="passphrase doesn't open"):
        secret.read()
    delivery.passphrase.write_text("another")
    assert secret.read() == "new-one"


def test_a_message_that_is_gone_is_not_remembered(delivery: Delivery) -> None:
    secret = delivery.secret
    assert secret.read() == CANARY
    delivery.message.unlink()
    with pytest.raises(CredentialsError, match=r"message.asc can't be read \(No such file"):
        secret.read()


@pytest.mark.parametrize("name", ["message", "key"])
def test_a_pgp_file_of_absurd_size_is_refused(delivery: Delivery, name: str) -> None:
    path: Path = getattr(delivery, name)
    path.write_bytes(path.read_bytes() + b"\n" * MAX_PGP_BYTES)
    with pytest.raises(CredentialsError, match="holds more than"):
        delivery.secret.read()


@pytest.mark.parametrize("content", ["", f"client_id: abc\nclient_secret: {CANARY}"])
def test_a_message_that_holds_no_secret_alone_is_refused(delivery: Delivery, content: str) -> None:
    delivery.deliver(content)
    with pytest.raises(CredentialsError, match=r"What the PGP message .* holds") as caught:
        delivery.secret.read()
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("content", [None, "", "two\nlines"])
def test_a_passphrase_that_can_not_be_had_is_told(delivery: Delivery, content: str | None) -> None:
    secret = delivery.secret
    delivery.passphrase.unlink()
    if content is not None:
        delivery.passphrase.write_text(content)
    with pytest.raises(
        CredentialsError, match=r"^The passphrase of .*key.asc can't be had\. The secret file .*passphrase "
    ):
        secret.read()


def test_an_error_of_pgp_names_the_files_and_no_secret(delivery: Delivery) -> None:
    delivery.passphrase.write_text("wr0ng-canary")
    with pytest.raises(CredentialsError) as caught:
        delivery.secret.read()
    assert str(delivery.message) in str(caught.value)
    assert str(delivery.key) in str(caught.value)
    assert "wr0ng" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_pgp_source_shows_neither_secret_nor_passphrase(delivery: Delivery) -> None:
    source = PgpSecret(delivery.message, delivery.key, StaticSecret(PASSPHRASE))
    assert source.read() == CANARY
    assert CANARY not in repr(source)
    assert PASSPHRASE not in repr(source)


# --- making a key -----------------------------------------------------------------------------------------------------


def test_a_private_key_is_for_its_user_alone(delivery: Delivery) -> None:
    assert stat.S_IMODE(delivery.key.stat().st_mode) == 0o600


def test_a_private_key_is_never_overwritten(delivery: Delivery) -> None:
    before = delivery.key.read_bytes()
    with pytest.raises(CredentialsError, match="exists and stays as it is"):
        write_key_pair("agency", PASSPHRASE, delivery.key)
    assert delivery.key.read_bytes() == before


def test_a_private_key_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match=r"can't be written \(No such file or directory\)"):
        write_key_pair("agency", PASSPHRASE, tmp_path / "nowhere" / "key.asc")


def test_making_a_key_that_is_interrupted_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pgp, "new_key_pair", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_key_pair("agency", PASSPHRASE, tmp_path / "key.asc")
    assert list(tmp_path.iterdir()) == []


def new_key(folder: Path, *arguments: str, typed: str | None = None, **variables: str) -> Result:
    environment = {"LEADS_PGP_PASSPHRASE": None, "LEADS_PGP_PASSPHRASE_FILE": None, **variables}
    command = ["credentials", "new-key", "--private-key", str(folder / "key.asc"), *arguments]
    return CliRunner().invoke(main, command, input=typed, env=environment)


@pytest.mark.parametrize("way", ["variable", "file", "typed"])
def test_the_command_prints_the_public_half_and_the_key_opens_messages_for_it(tmp_path: Path, way: str) -> None:
    (tmp_path / "passphrase").write_text(f"{PASSPHRASE}\n")
    if way == "typed":
        result = new_key(tmp_path, typed=f"{PASSPHRASE}\n{PASSPHRASE}\n")
    elif way == "file":
        result = new_key(tmp_path, LEADS_PGP_PASSPHRASE_FILE=str(tmp_path / "passphrase"))
    else:
        result = new_key(tmp_path, LEADS_PGP_PASSPHRASE=PASSPHRASE)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("-----BEGIN PGP PUBLIC KEY BLOCK-----")
    assert result.stdout.endswith("-----END PGP PUBLIC KEY BLOCK-----\n")
    assert PASSPHRASE not in result.output
    assert "PRIVATE KEY BLOCK" not in result.output
    public = pysequoia.Cert.from_bytes(result.stdout_bytes)
    (tmp_path / "message").write_bytes(pysequoia.encrypt(recipients=[public], bytes=CANARY.encode()))
    assert PgpSecret(tmp_path / "message", tmp_path / "key.asc", StaticSecret(PASSPHRASE)).read() == CANARY


def test_the_command_names_the_key_and_never_overwrites_one(tmp_path: Path) -> None:
    first = new_key(tmp_path, "--user-id", "Agency <it@agency.example>", LEADS_PGP_PASSPHRASE=PASSPHRASE)
    assert [str(name) for name in pysequoia.Cert.from_bytes(first.stdout_bytes).user_ids] == [
        "Agency <it@agency.example>"
    ]
    key = (tmp_path / "key.asc").read_bytes()
    again = new_key(tmp_path, LEADS_PGP_PASSPHRASE=PASSPHRASE)
    assert again.exit_code == 2
    assert "exists and stays as it is" in " ".join(again.stderr.split())
    assert again.stdout == ""
    assert (tmp_path / "key.asc").read_bytes() == key

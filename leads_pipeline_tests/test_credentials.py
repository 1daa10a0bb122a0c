import os
from pathlib import Path

import pytest

from leads_pipeline.credentials import MAX_SECRET_BYTES, FileSecret, SecretSource, StaticSecret
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

"""The real gpg, with a keyring of the test's own."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

needs_gpg = pytest.mark.skipif(
    shutil.which("gpg") is None, reason="gpg is not installed (Debian: apt install gnupg)"
)

PASSPHRASE = "hünter 22"


class Gpg:
    """gpg as a person would use it, its questions answered."""

    def __init__(self, home: Path) -> None:
        self.home = home
        # How hard a passphrase is to guess is measured and tried anew for each key otherwise:
        # seconds each.
        (home / "gpg-agent.conf").write_text("s2k-count 65536\n")

    def command(self, passphrase: str = PASSPHRASE) -> list[str]:
        """gpg with the options that answer its questions."""
        options = "--batch --quiet --no-auto-check-trustdb --pinentry-mode loopback"
        return [
            str(shutil.which("gpg")),
            *options.split(),
            "--homedir",
            str(self.home),
            "--trust-model",
            "always",
            "--passphrase",
            passphrase,
        ]

    def run(self, *arguments: str, given: bytes = b"", passphrase: str = PASSPHRASE) -> bytes:
        """What gpg prints."""
        command = [*self.command(passphrase), *arguments]
        ended = subprocess.run(command, input=given, capture_output=True, check=False)
        assert ended.returncode == 0, ended.stderr.decode()
        return ended.stdout

    def make_key(self, name: str, *, passphrase: str = PASSPHRASE) -> bytes:
        """A new key that never expires, as its owner exports it."""
        user_id = f"{name} <{name}@keys.example>"
        generate = ("--quick-generate-key", user_id, "future-default", "default", "never")
        self.run(*generate, passphrase=passphrase)
        return self.run("--armor", "--export-secret-keys", user_id, passphrase=passphrase)

    def encrypt(self, content: bytes, name: str) -> bytes:
        """An armoured message for that key."""
        return self.run("--armor", "--recipient", name, "--encrypt", given=content)


@contextmanager
def running_gpg() -> Iterator[Gpg]:
    """A gpg whose folder and agent go away at the end."""
    # Not pytest's folder: its path is longer than what a socket's name, the agent's, can hold (108
    # bytes).
    with tempfile.TemporaryDirectory(prefix="gpg-") as folder:
        try:
            yield Gpg(Path(folder))
        finally:
            subprocess.run(["gpgconf", "--homedir", folder, "--kill", "all"], check=False)

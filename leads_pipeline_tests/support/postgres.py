"""A real PostgreSQL for tests, where one is installed: a server of its own, on a socket in a
folder.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

_PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


@dataclass(frozen=True)
class Postgres:
    """A server that runs."""

    folder: str
    control: tuple[str, ...]

    @property
    def variables(self) -> dict[str, str]:
        """What leads programs of PostgreSQL's to it."""
        return {"PGHOST": self.folder, "PGUSER": "agency", "PGDATABASE": "postgres"}

    @property
    def url(self) -> str:
        """The same as an address."""
        return f"postgresql://agency@/postgres?host={self.folder}"

    def start(self) -> None:
        """Start it."""
        options = f"-k {self.folder} -c listen_addresses='' -c fsync=off"
        self._do("--options", options, "--log", f"{self.folder}/log", "start")

    def stop(self) -> None:
        """Stop it at once, with all connections."""
        self._do("--mode", "immediate", "stop")

    def _do(self, *arguments: str) -> None:
        subprocess.run([*self.control, *arguments], check=True, stdout=subprocess.DEVNULL, cwd="/")


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Start one, and stop it at the end."""
    if not _PROGRAMS or not shutil.which("psql"):
        pytest.skip("PostgreSQL isn't installed (Debian's package postgresql)")
    # It refuses to run as root. Its socket's path has to be short.
    other = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []

    with TemporaryDirectory(prefix="pg-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        if other:
            shutil.chown(folder, "postgres")

        data = f"{folder}/data"
        initdb = str(_PROGRAMS[-1])
        pg_ctl = str(_PROGRAMS[-1].with_name("pg_ctl"))
        options = "--auth trust --username agency --encoding UTF8"
        make = [*other, initdb, "--pgdata", data, *options.split()]
        subprocess.run(make, check=True, capture_output=True, cwd="/")

        server = Postgres(folder, (*other, pg_ctl, "--pgdata", data, "--wait"))
        server.start()
        try:
            yield server
        finally:
            server.stop()

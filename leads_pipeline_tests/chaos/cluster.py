"""`make cluster`: stores that machines land in, then runs in containers of their own, some of them killed.

Belongs here: what takes a store's server or a container engine; each part says why where it can't be had. Doesn't: what
is to hold of a store (test_objects.py), and what can be seen of files alone (test_deploy.py, test_launching.py).

Ceph takes Debian's packages ceph-mon, ceph-osd and radosgw. The containers take podman or docker with compose, a base
image of Debian and one of Postgres. BASE_IMAGE is another base, COMPOSE another way to call compose, as
"podman-compose", CONTAINER_SOCKET the engine's socket. What comes after takes PostgreSQL's programs.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Final

import click
import pytest

from benchmarks.environments import interpreter
from leads_pipeline.simulator import Config, RunningSimulator, running
from leads_pipeline.simulator.leads import KINDS
from leads_pipeline_tests.buckets import KEYS, made_bucket, running_moto
from leads_pipeline_tests.ceph import skip_without_ceph
from leads_pipeline_tests.newcomer import ROOT, copy_checkout, wait_for
from leads_pipeline_tests.test_delta_mirror import CLICKHOUSE

_PATIENCE_SECONDS: Final = 15 * 60
_BUILT_FROM: Final = (
    *("deploy", "leads_pipeline", "pyproject.toml", "README.md", "LICENSE"),
    *("requirements-containers.lock", ".containerignore"),
)
# A pull of the last 30 days takes a minute then: long enough to be killed in the middle.
_LATENCY_MS: Final = 2500
_EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - what containers reach
_SOCKETS: Final = {"podman": "/run/podman/podman.sock", "docker": "/var/run/docker.sock"}
_LEADS: Final = """
import duckdb
with duckdb.connect("/data/leads.duckdb", read_only=True) as db:
    ids = db.sql("select lead_id from applicant_leads union select lead_id from appraisal_leads").fetchall()
    print(*(lead_id for (lead_id,) in ids))
"""


class _NotHereError(Exception):
    """Why a part can't be tried on this machine."""


class _Engine:
    """podman or docker, with the compose file of a copy of this checkout."""

    def __init__(self, folder: Path, *overlays: str) -> None:
        self.name = next((name for name in ("docker", "podman") if self._answers(name)), "")
        if not self.name:
            raise _NotHereError("neither docker nor podman answers")
        self.socket = os.environ.get("CONTAINER_SOCKET", _SOCKETS[self.name])
        if not Path(self.socket).is_socket():
            raise _NotHereError(f"{self.socket} is no socket of {self.name} (CONTAINER_SOCKET names another)")
        default = "podman-compose" if self.name == "podman" else "docker compose"
        files = [f"--file={folder}/deploy/{name}" for name in ("compose.yaml", "compose.runs.yaml", *overlays)]
        self.compose = [*shlex.split(os.environ.get("COMPOSE", default)), *files, "--profile=postgres"]
        if not shutil.which(self.compose[0]):
            raise _NotHereError(f"{self.compose[0]} isn't installed (COMPOSE names another)")
        self.environment = {
            **os.environ,
            "CONTAINER_SOCKET": self.socket,
            "CONTAINER_GROUP": str(Path(self.socket).stat().st_gid),
        }
        self.folder = folder

    def from_inside(self, address: str) -> str:
        """The address of a server of this machine, as a container reaches it."""
        host = "host.containers.internal" if self.name == "podman" else "host.docker.internal"
        return f"http://{host}:{address.rpartition(':')[2]}"

    def fill_in(self, portal: RunningSimulator, more: Mapping[str, str] = MappingProxyType({})) -> None:
        """Write the .env that compose reads."""
        variables = {
            **{name: value for name, value in portal.environment().items() if name.startswith("LEADS_")},
            **dict.fromkeys(("LEADS_BASE_URL", "LEADS_AUTH_URL"), self.from_inside(portal.base_url)),
            "LEADS_ALLOW_PLAIN_HTTP": "yes",
            **more,
        }
        (self.folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))

    @staticmethod
    def _answers(name: str) -> bool:
        return (
            bool(shutil.which(name))
            and subprocess.run([name, "info"], capture_output=True, check=False).returncode == 0
        )

    def do(self, *arguments: str) -> str:
        """What the engine prints. Raises RuntimeError where it fails."""
        done = subprocess.run(
            [self.name, *arguments], cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"`{self.name} {arguments[0]}` fails: {done.stderr.strip()[-400:]}")
        return done.stdout

    @contextmanager
    def up(self) -> Iterator[None]:
        """Have compose start everything, and take it away with all that it kept at the end."""
        if "leads-pipeline_data" in self.do("volume", "ls", "--quiet").split():
            raise _NotHereError("the volume leads-pipeline_data is there already, and this would delete it")
        try:
            done = subprocess.run(
                [*self.compose, "up", "--detach"], env=self.environment, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise _NotHereError(f"compose fails: {done.stderr.strip()[-400:]}")
            yield
        finally:
            subprocess.run([*self.compose, "down", "--volumes"], env=self.environment, capture_output=True, check=False)
            # Containers of runs aren't compose's, and podman-compose leaves a volume.
            self._remove(
                "rm", "--force", *self.do("ps", "--all", "--quiet", "--filter=volume=leads-pipeline_data").split()
            )
            self._remove(
                "volume", "rm", *(f"leads-pipeline_{name}" for name in ("data", "postgres", "postgres-socket"))
            )

    def _remove(self, *arguments: str) -> None:
        subprocess.run([self.name, *arguments], env=self.environment, capture_output=True, check=False)

    def inside(self, *command: str) -> str:
        """What the command prints in the container with pages and daemon; its exit code doesn't matter."""
        [name] = self.do("ps", "--filter=label=com.docker.compose.service=pipeline", "--format={{.ID}}").split()
        return subprocess.run([self.name, "exec", name, *command], capture_output=True, text=True, check=False).stdout

    def runs(self) -> list[str]:
        """The containers of pulls that are at work."""
        return self.do("ps", "--quiet", "--filter=label=dagster/job_name=pull_leads").split()


def stores(name: str, folder: Path) -> None:
    """The contract of the stores over one of them, four machines that are killed, a month there, Delta tables there."""
    if name == "ceph":
        skip_without_ceph()
    with suppress(subprocess.CalledProcessError):  # pip has said why; the tests that read by it are skipped
        interpreter(CLICKHOUSE)
    files = ("test_objects.py", "chaos/test_object_store.py", "test_delta_mirror.py")
    command = [sys.executable, "-m", "pytest", "--quiet", "-m", "chaos or not chaos", "-k", name]
    tests = [f"leads_pipeline_tests/{file}" for file in files]
    subprocess.run([*command, f"--basetemp={folder}/tests", *tests], cwd=ROOT, check=True)


def _say(begun: float, text: str) -> None:
    click.echo(f"{time.monotonic() - begun:6.0f} s  {text}")


def containers(folder: Path) -> None:
    """Everything by compose; the first pull is killed, and all of it has to be published all the same."""
    begun, begun_at = time.monotonic(), datetime.now(UTC)
    engine = _built(folder, begun)
    # The containers are another machine to this one's loopback address.
    with running(Config(branches=3, leads_per_day=20, latency_ms=_LATENCY_MS), host=_EVERYWHERE) as portal:
        engine.fill_in(portal)
        with engine.up():
            _say(begun, "compose has started everything")
            wait_for(lambda: bool(engine.runs()), _PATIENCE_SECONDS)
            wait_for(lambda: _landed(engine) > 10, _PATIENCE_SECONDS)
            [first] = engine.runs()
            engine.do("kill", first)
            _say(begun, f"the first pull is killed, with {_landed(engine)} windows landed")
            wait_for(lambda: bool(engine.runs()), _PATIENCE_SECONDS)
            _say(begun, "the rest is pulled, by itself")
            closed = _closed(portal, begun_at)
            wait_for(lambda: closed <= _published(engine), _PATIENCE_SECONDS)
            _say(begun, f"each of the portal's {len(closed)} leads of closed days is published")


def containers_with_a_bucket(folder: Path) -> None:
    """The same over a bucket, whose leads outlive the portal and the machine with all of its volumes."""
    begun, begun_at = time.monotonic(), datetime.now(UTC)
    engine = _built(folder, begun, "compose.s3.yaml")
    with running_moto(_EVERYWHERE) as store:
        engine.environment["BUCKET"] = f"s3://{made_bucket(store)}/cluster"
        with running(Config(branches=3, leads_per_day=20), host=_EVERYWHERE) as portal:
            engine.fill_in(portal, {**KEYS, "AWS_ENDPOINT_URL": engine.from_inside(store)})
            closed = _closed(portal, begun_at)
            with engine.up():
                _say(begun, "compose has started everything")
                wait_for(lambda: closed <= _published(engine), _PATIENCE_SECONDS)
        _say(begun, f"each of {len(closed)} leads of closed days is published; machine and portal are gone")
        with engine.up():
            wait_for(lambda: closed <= _published(engine), _PATIENCE_SECONDS)
        _say(begun, "an empty machine has published them all from the bucket")


def _built(folder: Path, begun: float, *overlays: str) -> _Engine:
    """The engine, with the image of this checkout."""
    copy_checkout(folder, _BUILT_FROM)
    engine = _Engine(folder, *overlays)
    base = [f"--build-arg=DEBIAN={os.environ['BASE_IMAGE']}"] if os.environ.get("BASE_IMAGE") else []
    try:
        engine.do("build", "--network=host", *base, "--tag=leads-pipeline", "--file=deploy/Containerfile", ".")
    except RuntimeError as error:  # mostly that no registry, or no package index, can be reached
        raise _NotHereError(f"the image can't be built here: {error}") from None
    _say(begun, "the image is built")
    return engine


def _closed(portal: RunningSimulator, begun_at: datetime) -> set[str]:
    """The portal's leads of closed days. What comes in meanwhile belongs to today, which is pulled tonight."""
    today = {lead for kind in KINDS for lead in portal.truth(kind, "all", start=begun_at - timedelta(days=1))}
    return {lead for kind in KINDS for lead in portal.truth(kind, "all")} - today


def _published(engine: _Engine) -> set[str]:
    return set(engine.inside("/opt/leads-pipeline/.venv/bin/python3", "-c", _LEADS).split())


def _landed(engine: _Engine) -> int:
    return len(engine.inside("find", "/data/raw", "-name", "*.parquet").split())


def main() -> None:
    """Try each part, and say what became of it; what fails ends with a traceback."""
    parts = (
        ("a folder as the store", partial(stores, "folder")),
        ("moto as the store", partial(stores, "moto")),
        ("Ceph as the store", partial(stores, "ceph")),
        ("containers", containers),
        ("containers with a bucket", containers_with_a_bucket),
    )
    for name, part in parts:
        with TemporaryDirectory(prefix="leads-pipeline-cluster-") as folder:
            try:
                part(Path(folder))
                click.echo(f"passed   {name}")
            except (_NotHereError, pytest.skip.Exception) as why:
                click.echo(f"skipped  {name}: {why}")
    click.echo("skipped  Kubernetes itself: nothing here starts a control plane")


if __name__ == "__main__":
    main()

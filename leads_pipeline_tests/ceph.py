"""A real Ceph Object Gateway for tests, where one is installed: a monitor, one disk and the gateway, in a folder.

Belongs here: starting and ending them. Doesn't: buckets, and what is to hold of them (test_objects.py).
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import httpx
import pytest

from leads_pipeline_tests.newcomer import free_port, wait_for

_PROGRAMS = ("ceph", "ceph-mon", "ceph-osd", "radosgw", "radosgw-admin")

# One copy of everything, no keys, and no waiting for other monitors: each pool takes several rounds of theirs.
_SETTINGS = """
[global]
fsid = {fsid}
mon host = v2:127.0.0.1:{port}
auth cluster required = none
auth service required = none
auth client required = none
# The gateway would talk to monitors encrypted alone, which takes keys.
ms mon client mode = crc
run dir = {folder}
crash dir = {folder}
keyring = {folder}/keyring
log file = {folder}/$name.log
mon cluster log file = {folder}/$channel.log
admin socket =
mon data = {folder}/mon
# A test's disk may be fuller than a monitor likes.
mon data avail crit = 1
mon allow pool size one = true
paxos propose interval = 0.02
paxos min wait = 0.01
osd data = {folder}/osd
bluestore block size = 4294967296
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pg autoscale mode = off
rgw data = {folder}/gateway
"""


def skip_without_ceph() -> None:
    """Skip what is going on where Ceph isn't installed."""
    if missing := [name for name in _PROGRAMS if not shutil.which(name)]:
        pytest.skip(f"Ceph isn't installed (Debian's packages ceph-mon, ceph-osd and radosgw): no {', '.join(missing)}")


@contextmanager
def running_ceph(key_id: str, secret: str) -> Iterator[str]:
    """The address of a gateway that lets these credentials make buckets; everything is killed at the end."""
    skip_without_ceph()
    with TemporaryDirectory(prefix="ceph-", dir="/tmp", ignore_cleanup_errors=True) as name, ExitStack() as daemons:
        folder, disk = Path(name), str(uuid4())
        (folder / "osd").mkdir()
        (folder / "keyring").touch()
        (folder / "ceph.conf").write_text(_SETTINGS.format(folder=folder, fsid=uuid4(), port=free_port()))

        def do(program: str, *arguments: str) -> None:
            done = subprocess.run(_command(folder, program, *arguments), capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr

        def start(program: str, *arguments: str) -> "subprocess.Popen[bytes]":
            with (folder / f"{program}.out").open("wb") as out:
                command = _command(folder, program, "--foreground", *arguments)
                daemon = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
            daemons.callback(daemon.wait)
            daemons.callback(daemon.kill)
            return daemon

        do("ceph-mon", "--id=a", "--mkfs")
        start("ceph-mon", "--id=a")
        do("ceph", "--connect-timeout=60", "osd", "new", disk)
        do("ceph-osd", "--id=0", "--mkfs", f"--osd-uuid={disk}")
        start("ceph-osd", "--id=0")
        user = ("--uid=tests", "--display-name=tests", f"--access-key={key_id}", f"--secret-key={secret}")
        do("radosgw-admin", "user", "create", *user)
        port = free_port()
        # Without tcp_nodelay each read waits for the reader's system to acknowledge its beginning: 40 ms.
        gateway = start("radosgw", f"--rgw-frontends=beast endpoint=127.0.0.1:{port} tcp_nodelay=1")
        address = f"http://127.0.0.1:{port}"
        wait_for(lambda: _answers(gateway, address, folder / "radosgw.out"))
        yield address


def _command(folder: Path, program: str, *arguments: str) -> list[str]:
    return [program, f"--conf={folder}/ceph.conf", *arguments]


def _answers(gateway: "subprocess.Popen[bytes]", address: str, out: Path) -> bool:
    assert gateway.poll() is None, out.read_text()
    try:
        return httpx.get(address).is_success
    except httpx.TransportError:
        return False

"""A `leads-pipeline` command in a process whose n-th system call on a folder fails, or is its last.

Belongs here: how the command and a portal that pushes run there. Doesn't: the fault
(support/system_calls.py), what must hold after it (test_kills_and_full_disks.py).
"""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from leads_pipeline.cli import main


def command(environment: Mapping[str, str], arguments: Sequence[str], output: Path) -> int:
    """Run `leads-pipeline` in this process, as its script does.

    Give the exit code; what it prints goes to the file.
    """
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(output.parent)
    sys.argv = ["leads-pipeline", *arguments]
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - Python would print it as well
        traceback.print_exc()
        return 1
    finally:
        with suppress(OSError):  # Dagster may have let both go to a file on the disk that is full
            sys.stdout.flush()
            sys.stderr.flush()
    return 0


def receive(
    environment: Mapping[str, str], port: int, leads: Sequence[Mapping[str, Any]], output: Path
) -> int:
    """Run `receive` in this process.

    A thread pushes the leads, one by one, and notes whose push was acknowledged.
    """
    acknowledged = output.with_name("acknowledged")
    acknowledged.write_text("")
    thread = threading.Thread(
        target=_push, args=(environment, port, leads, acknowledged), daemon=True
    )
    thread.start()
    return command(environment, ["receive", "--port", str(port)], output)


def _push(
    environment: Mapping[str, str],
    port: int,
    leads: Sequence[Mapping[str, Any]],
    acknowledged: Path,
) -> None:
    headers = {"Authorization": environment["LEADS_RECEIVE_KEY"]}
    # The environment, which has proxies, is replaced meanwhile.
    with httpx.Client(headers=headers, trust_env=False, timeout=60) as portal:
        for lead in leads:
            if _is_acknowledged(portal, f"http://127.0.0.1:{port}/leads", lead):
                with acknowledged.open("a") as file:
                    file.write(f"{lead['id']}\n")
    os.kill(os.getpid(), signal.SIGINT)  # ctrl-C


def _is_acknowledged(portal: httpx.Client, address: str, lead: Mapping[str, Any]) -> bool:
    for _ in range(600):  # a minute, as a busy machine takes its time to start the receiver
        with suppress(httpx.TransportError):
            return portal.post(address, json={"applicants": [lead]}).status_code == 200
        time.sleep(0.1)  # it isn't listening yet
    return False

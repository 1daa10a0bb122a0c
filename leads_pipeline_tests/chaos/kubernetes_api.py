"""What of Kubernetes' API a launcher asks for, played: a job is a process of this machine, of what its container says.

Belongs here: making, asking for and deleting jobs, over HTTP as the real one. Doesn't: pods, rights, images, volumes;
whether a cluster would take a job is for its schemas (pods.py).
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import yaml

from leads_pipeline_tests.newcomer import BIN
from leads_pipeline_tests.pods import faults, strictly_valid

_JOBS = "/apis/batch/v1/namespaces/leads-pipeline/jobs"


class KubernetesApi:
    """Jobs by name, each with its process. `environment` is what ConfigMap and Secret hold."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.refused: list[str] = []

    def make(self, job: dict[str, Any]) -> None:
        """Start the job's process, and note what a namespace like ours would refuse of it."""
        strictly_valid(job)
        pod = job["spec"]["template"]["spec"]
        self.refused += faults(pod)
        [container] = pod["containers"]
        program, *arguments = container["args"]
        own = {one["name"]: one["value"] for one in container["env"]}
        self.processes[job["metadata"]["name"]] = subprocess.Popen(
            [BIN / program, *arguments],
            env={"PATH": os.environ["PATH"], **self.environment, **own},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def status(self, name: str) -> dict[str, int]:
        """As a job's status tells it."""
        code = self.processes[name].poll()
        return {"active": 1} if code is None else {"succeeded": 1} if code == 0 else {"failed": 1}

    def alive(self) -> list[str]:
        """The names of jobs that are at work."""
        return [name for name, process in self.processes.items() if process.poll() is None]


@contextmanager
def playing(api: KubernetesApi, folder: Path) -> Iterator[Path]:
    """Serve it; gives the file that leads clients to it."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self, status: int, body: object) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_POST(self) -> None:
            assert self.path == _JOBS
            job = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            api.make(job)
            self.answer(201, job)

        def do_GET(self) -> None:
            path, _, _ = self.path.partition("?")
            name = path.removeprefix(f"{_JOBS}/").removesuffix("/status")
            if name in api.processes:
                self.answer(200, {"kind": "Job", "metadata": {"name": name}, "status": api.status(name)})
            elif path == _JOBS or path.endswith(("/pods", "/events")):
                self.answer(200, {"kind": "List", "items": []})
            else:
                self.answer(404, {"kind": "Status", "code": 404, "reason": "NotFound"})

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    file = folder / "kubeconfig"
    named = {"name": "played"}
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{**named, "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
                "users": [{**named, "user": {}}],
                "contexts": [{**named, "context": {"cluster": "played", "user": "played"}}],
                "current-context": "played",
            }
        )
    )
    try:
        yield file
    finally:
        server.shutdown()
        server.server_close()
        for process in api.processes.values():
            process.kill()
            process.wait()

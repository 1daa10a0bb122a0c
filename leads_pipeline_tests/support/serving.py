"""A handler of requests behind a socket of this machine, and a certificate for such a socket."""

import atexit
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class QuietHandler(BaseHTTPRequestHandler):
    """A handler that prints nothing."""

    def answer(self, status: int, body: bytes, cut_off: int = 0, **headers: str) -> None:
        """Send an answer, so many bytes short.

        An underscore in the name of a header stands for a hyphen.
        """
        self.send_response(status)
        for name, value in {"Content_Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body) + cut_off))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # a connection that is kept doesn't hold up the end

    def handle_error(self, *arguments: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # the client may have been killed
            super().handle_error(*arguments)


@contextmanager
def serving(handler: type[QuietHandler], port: int = 0) -> Iterator[str]:
    """Serve while the block runs, each request in a thread. Give the address, without a path."""
    with _Server(("127.0.0.1", port), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def listens(port: int) -> bool:
    """Whether somebody takes connections there."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def free_port() -> int:
    """A port that nobody listens on, and that no other test is given while this process lives.

    A socket that is bound and doesn't listen keeps the port from whoever asks for any port, and
    lets a server take it.
    """
    free = socket.socket()
    atexit.register(free.close)
    free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    free.bind(("127.0.0.1", 0))
    return int(free.getsockname()[1])


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of this machine that it has signed itself, and the key of it."""
    certificate = folder / "certificate.pem"
    key = folder / "private.key"
    make = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "
        "-subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1"
    )
    command = [*make.split(), "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key

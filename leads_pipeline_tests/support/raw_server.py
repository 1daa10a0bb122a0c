"""A server that writes what it is told to a real socket, and an HTTP answer or a wreck of one to be
written.

Belongs here: bytes and connections. Doesn't: what the bytes mean to the pipeline, which the test
says.
"""

import contextlib
import re
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from leads_pipeline_tests.support.serving import make_certificate

HEAD = b"HTTP/1.1 200 OK\r\n"

# Writes an answer, or a wreck of one.
Script = Callable[[socket.socket], None]


class RawServer:
    """Answers each request with a script that writes bytes to the socket: that of its path, else
    `script`.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._tls = tls
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._listener.getsockname()[1]}"
        self.script: Script = lambda _: None
        self.scripts: dict[str, Script] = {}
        self.requests: list[bytes] = []
        self.connections = 0
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            if self._tls:
                connection = self._tls.wrap_socket(connection, server_side=True)
            while head := read_head(connection):
                self.requests.append(head)
                length = re.search(rb"\r\ncontent-length: (\d+)", head, re.IGNORECASE)
                left = int(length[1]) if length else 0
                while left and (piece := connection.recv(left)):
                    left -= len(piece)
                self.scripts.get(path_of(head), self.script)(connection)

    def asked_for(self, path: str) -> int:
        """How many requests came for the path."""
        return [path_of(head) for head in self.requests].count(path)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(timeout=5)


def path_of(head: bytes) -> str:
    """The path that a request's head asks for, without its query."""
    return head.split(b" ", 2)[1].partition(b"?")[0].decode()


def read_head(connection: socket.socket) -> bytes:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = connection.recv(1)
        if not piece:
            return b""
        head += piece
    return head


def respond(body: bytes, *headers: str, status: int = 200) -> Script:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers]

    def script(connection: socket.socket) -> None:
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    return script


def raw(data: bytes) -> Script:
    """These bytes, and the end of the connection."""

    def script(connection: socket.socket) -> None:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_RDWR)

    return script


def drip(body: bytes, *, head: bytes | None = None, pause_seconds: float = 0.05) -> Script:
    """A whole answer, byte by byte after its head, until nobody reads any more."""

    def script(connection: socket.socket) -> None:
        connection.sendall(
            HEAD + b"Content-Length: %d\r\n\r\n" % len(body) if head is None else head
        )
        for byte in body:
            connection.sendall(bytes([byte]))
            time.sleep(pause_seconds)

    return script


def bomb(megabytes: int) -> bytes:
    """A gzip body of zeros: a block that was flushed stands for itself, so one can be sent again
    and again.
    """
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    start = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    return start + (packer.compress(b"\0" * 2**20) + packer.flush(zlib.Z_FULL_FLUSH)) * megabytes


def unknown_authority(folder: Path) -> ssl.SSLContext:
    """TLS for a server of this machine whose certificate no authority has signed."""
    certificate, key = make_certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context

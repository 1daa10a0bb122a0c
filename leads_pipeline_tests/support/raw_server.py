"""A server that writes what it is told to a real socket, and an HTTP answer or a wreck of one to be written.

Belongs here: bytes and connections. Doesn't: what the bytes mean to the pipeline, which the test says.
"""

import contextlib
import gzip
import socket
import struct
import threading
from collections.abc import Callable

HEAD = b"HTTP/1.1 200 OK\r\n"


class RawServer:
    """Answers each connection with a script that writes bytes to the socket."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.script: Callable[[socket.socket], None] = lambda _: None
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
        with connection, contextlib.suppress(OSError):
            while head := read_head(connection):
                self.requests.append(head)
                self.script(connection)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(timeout=5)


def read_head(connection: socket.socket) -> bytes:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = connection.recv(1)
        if not piece:
            return b""
        head += piece
    return head


def respond(
    body: bytes, *headers: str, length: int | None = None, status: int = 200
) -> Callable[[socket.socket], None]:
    """A whole answer, or one whose Content-Length says more than comes; then the connection ends."""
    stated = len(body) if length is None else length
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {stated}", *headers]

    def script(connection: socket.socket) -> None:
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        if stated != len(body):
            connection.shutdown(socket.SHUT_RDWR)

    return script


def raw(data: bytes, *, reset: bool = False) -> Callable[[socket.socket], None]:
    def script(connection: socket.socket) -> None:
        connection.sendall(data)
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        else:
            connection.shutdown(socket.SHUT_RDWR)

    return script


def gzipped(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)

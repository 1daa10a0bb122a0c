"""The body of an answer, decoded step by step and bounded."""

import zlib
from collections.abc import AsyncIterator

import httpx

from leads_pipeline.errors import InvalidAnswerError, TooLargeError

# How much of a gzip body is decoded at once: 64 kB received can stand for 64 MB.
DECODE_STEP_BYTES = 256 * 1024


class BoundedBody(httpx.AsyncByteStream):
    """A body that is decoded here and bounded both as received and as decoded.

    httpx would decode whatever stands in one read at once, and takes a gzip body that is cut off for a whole one.
    """

    def __init__(self, stream: httpx.AsyncByteStream, encoding: str, max_bytes: int) -> None:
        self._stream = stream
        self._encoding = encoding.strip().lower()
        self._max_bytes = max_bytes
        self._received = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._encoding not in {"", "identity", "gzip", "x-gzip"}:
            raise InvalidAnswerError("Its content encoding is none that was asked for.", reason="unknown encoding")
        is_gzip = "gzip" in self._encoding
        decoded = 0
        async for piece in _gunzip(self._count()) if is_gzip else self._count():
            decoded += len(piece)
            self._check(decoded)
            yield piece

    async def aclose(self) -> None:
        """Close the stream below."""
        await self._stream.aclose()

    async def _count(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._received += len(piece)
            self._check(self._received)
            yield piece

    def _check(self, size: int) -> None:
        if size > self._max_bytes:
            raise TooLargeError(f"Its body is larger than {self._max_bytes} bytes.")


async def _gunzip(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Decode step by step, all members of the file one after the other (RFC 1952, section 2.2)."""
    decoder = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    is_begun = False
    async for piece in pieces:
        rest = piece
        while rest:
            if decoder.eof:
                decoder = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
            is_begun = True
            try:
                decoded = decoder.decompress(rest, DECODE_STEP_BYTES)
            except zlib.error:
                raise InvalidAnswerError("Its gzip body is damaged.", reason="broken gzip") from None
            rest = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
            if decoded:
                yield decoded
    if is_begun and not decoder.eof:
        raise InvalidAnswerError("Its gzip body is cut off.", reason="broken gzip")

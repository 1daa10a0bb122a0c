"""A coroutine's items as a plain iterator."""

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Outbox(Generic[T]):
    """Where a coroutine puts its items, with room for `capacity` that are under way or not yet taken."""

    def __init__(self, capacity: int) -> None:
        self.items: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._room = capacity
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._guard = threading.Lock()

    async def has_room(self) -> None:
        """Wait until one more item may be begun."""
        with self._guard:
            if self._room:
                self._room -= 1
                return
            room = asyncio.get_running_loop().create_future()
            self._waiting.append(room)
        await room

    def put(self, item: T) -> None:
        """Hand an item out, for which has_room has made room."""
        self.items.put(item)

    def taken(self) -> None:
        """Make room for another item, in any thread. It disturbs the loop only where somebody waits for that."""
        with self._guard:
            if not self._waiting:
                self._room += 1
                return
            room = self._waiting.popleft()
        _call_soon(room.get_loop(), lambda: None if room.done() else room.set_result(None))


def in_background(
    produce: Callable[[Outbox[T]], Coroutine[Any, Any, None]], *, capacity: int
) -> Generator[T, None, None]:
    """Run `produce` on an event loop in a thread of its own and yield what it puts out.

    Its exception, if any, is raised here after the items before it. Closing the iterator cancels it; in every case the
    thread has ended when the iterator has.
    """
    outbox: Outbox[T] = Outbox(capacity)
    runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
    loop = runner.get_loop()
    task = loop.create_task(produce(outbox))

    def drive() -> None:
        try:
            with runner:
                runner.run(asyncio.wait({task}))
        finally:
            outbox.items.put(None)

    thread = threading.Thread(target=drive, name="leads-client", daemon=True)
    thread.start()
    try:
        while (item := outbox.items.get()) is not None:
            outbox.taken()
            yield item
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error
    finally:
        _call_soon(loop, task.cancel)
        thread.join()


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended by itself: nobody is left to be told
        loop.call_soon_threadsafe(call)

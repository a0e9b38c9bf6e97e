"""Answers while they are written: for threads (Stream) and for asyncio (AsyncStream)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from . import _rullama
from ._types import Completion, Event, completion_of, event_of


def on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class Stream:
    """An answer as an iterator of events. Closing or dropping it cancels the answer.

    An answer that nobody reads pauses after some tokens and keeps its slot. A thread that leaves as
    many answers unread as the model has slots, and then waits for another one, waits for ever.

    One thread reads at a time; ``cancel()`` may be called from any thread. Ctrl-C while it waits
    cancels the answer and raises ``KeyboardInterrupt``.
    """

    def __init__(self, answer: _rullama.Answer) -> None:
        self._answer = answer

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Event:
        """The next part. Blocks without the GIL. Raises ``rullama.Error``: ``backend.nan``,
        ``sampler.empty``, those of the device; the answer is over then."""
        event = self._answer.next(on_main_thread())
        if event is None:
            raise StopIteration
        return event_of(event)

    def wait(self) -> Completion:
        """Reads the rest and returns the whole answer. Blocks; raises as the iterator does."""
        for _ in self:
            pass
        return self.completion

    @property
    def completion(self) -> Completion:
        """What has been read so far; whole once the iterator has ended."""
        return completion_of(self._answer.whole())

    def cancel(self) -> None:
        """Ends the answer within one step; the iterator then ends, with reason ``cancelled``."""
        self._answer.cancel()

    def close(self) -> None:
        """As ``cancel()``."""
        self.cancel()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _read(answer: _rullama.Answer, post: Callable[[Any], None]) -> None:
    # Runs on a thread of its own: a thread pool that is full of waiting answers would never read
    # those that the waiting ones wait for.
    last: BaseException | None = None
    try:
        while (event := answer.next(False)) is not None:
            post(event_of(event))
    except BaseException as error:  # handed to the reader
        last = error
    try:
        post(last)
    except RuntimeError:  # the event loop has been closed
        answer.cancel()


class AsyncStream:
    """An answer as an asynchronous iterator of events, for one task.

    Cancelling the task that waits, ``aclose()``, leaving ``async with`` and dropping it cancel the
    answer.
    """

    def __init__(self, answer: _rullama.Answer) -> None:
        self._answer = answer
        if _rullama.interpreter_ends():  # threads rest from now on
            raise RuntimeError("no answer can be awaited while the interpreter ends; use stream()")
        self._events: asyncio.Queue[Event | BaseException | None] = asyncio.Queue()
        self._over = False
        loop = asyncio.get_running_loop()
        events = self._events  # the thread must not keep this object alive

        def post(item: Event | BaseException | None) -> None:
            loop.call_soon_threadsafe(events.put_nowait, item)

        self._thread = threading.Thread(target=_read, args=(answer, post), name="rullama answer")
        self._thread.start()

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> Event:
        """The next part. Raises as ``Stream.__next__``."""
        if self._over:
            raise StopAsyncIteration
        try:
            item = await self._events.get()
        except asyncio.CancelledError:
            self._answer.cancel()
            raise
        if isinstance(item, Event):
            return item
        self._over = True
        if item is None:
            raise StopAsyncIteration
        raise item

    async def wait(self) -> Completion:
        """Reads the rest and returns the whole answer."""
        async for _ in self:
            pass
        return self.completion

    @property
    def completion(self) -> Completion:
        """Whole once the iterator has ended."""
        return completion_of(self._answer.whole())

    def cancel(self) -> None:
        """Ends the answer within one step; the iterator then ends, with reason ``cancelled``."""
        self._answer.cancel()

    async def aclose(self) -> None:
        """Cancels the answer and waits until its slot is free."""
        self.cancel()
        while not self._over:
            try:
                await self.__anext__()
            except (StopAsyncIteration, Exception):
                break

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        answer = getattr(self, "_answer", None)
        if answer is not None:
            answer.cancel()

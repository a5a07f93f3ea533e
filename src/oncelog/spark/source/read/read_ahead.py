"""Runs an iterator a few items ahead of its consumer, in a thread.

At most ``depth`` items are queued, and the next is made only when there is room. An exception takes the place of its
item. After ``close`` or the last item, the thread and its iterator have ended.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


def read_ahead(items: Iterator[T], depth: int) -> Generator[T, None, None]:
    """Yield the items of ``items``, which the thread owns from now on: nothing else may use or close it."""
    queue: _Queue[T] = _Queue(depth)
    # Fetching and decoding are mostly system calls and C loops, which do not hold the interpreter lock.
    thread = threading.Thread(target=_run, args=(items, queue), name="oncelog-read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            try:
                item = queue.get()
            except StopIteration:
                return
            yield item
            del item  # it may be large, and the next one may take a while
    finally:
        queue.cancel()
        thread.join()


class _Queue(Generic[T]):
    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._ended: BaseException | None = None
        self._cancelled = False

    def put(self, item: T) -> bool:
        """Add an item and wait until there is room for another. Returns False if the consumer has stopped."""
        with self._changed:
            self._items.append(item)
            self._changed.notify_all()
            del item
            self._changed.wait_for(lambda: len(self._items) < self._depth or self._cancelled)
            return not self._cancelled

    def end(self, error: BaseException) -> None:
        with self._changed:
            self._ended = error
            self._changed.notify_all()

    def get(self) -> T:
        """Remove the next item. Raises StopIteration after the last, or the iterator's exception."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._ended is not None)
            if self._items:
                item = self._items.popleft()
                self._changed.notify_all()
                return item
            assert self._ended is not None  # the wait guarantees it
            raise self._ended

    def cancel(self) -> None:
        with self._changed:
            self._cancelled = True
            self._items.clear()
            self._changed.notify_all()


def _run(items: Iterator[T], queue: _Queue[T]) -> None:
    outcome: BaseException = StopIteration()
    try:
        while queue.put(next(items)):
            pass
    except BaseException as error:  # noqa: BLE001 - raised again in the consumer
        outcome = error
    finally:
        close = getattr(items, "close", None)
        # Closing here, in the thread that runs the iterator: no other may.
        if close is not None:
            close()
        queue.end(outcome)

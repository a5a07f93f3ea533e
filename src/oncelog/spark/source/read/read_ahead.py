"""An iterator run a few items ahead of its consumer, by a thread.

While Spark takes a batch over a socket, the next one is fetched and decoded: most of that is system calls and C loops,
which hold no lock. Rules: items come in order, each once; at most ``depth`` of them wait, and no other is made until
there is room for it; an exception comes where its item would have come; after ``close`` (or the last item) the thread
has ended, and with it the iterator it ran.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


def read_ahead(items: Iterator[T], depth: int) -> Generator[T, None, None]:
    """The items of ``items``, which is the thread's from now on: nothing else may use it, not even to close it."""
    queue: _Queue[T] = _Queue(depth)
    thread = threading.Thread(target=_run, args=(items, queue), name="oncelog-read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            try:
                item = queue.take()
            except StopIteration:
                return
            yield item
            del item  # it may be large, and the next one may take a while
    finally:
        queue.abandon()
        thread.join()


class _Queue(Generic[T]):
    """A bounded queue between the iterator's thread and its consumer."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._ended: BaseException | None = None
        self._abandoned = False

    def put(self, item: T) -> bool:
        """Add an item, and wait until there is room for another; False if no item will be taken any more."""
        with self._changed:
            self._items.append(item)
            self._changed.notify_all()
            del item
            self._changed.wait_for(lambda: len(self._items) < self._depth or self._abandoned)
            return not self._abandoned

    def end(self, how: BaseException) -> None:
        """Let the queue end: ``how`` is raised after the last item."""
        with self._changed:
            self._ended = how
            self._changed.notify_all()

    def take(self) -> T:
        """The next item. Raises StopIteration after the last, or the iterator's exception."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._ended is not None)
            if self._items:
                item = self._items.popleft()
                self._changed.notify_all()
                return item
            assert self._ended is not None  # waited for
            raise self._ended

    def abandon(self) -> None:
        """Let no item be taken any more; a waiting ``put`` returns False."""
        with self._changed:
            self._abandoned = True
            self._items.clear()
            self._changed.notify_all()


def _run(items: Iterator[T], queue: _Queue[T]) -> None:
    how: BaseException = StopIteration()
    try:
        while queue.put(next(items)):
            pass
    except BaseException as error:  # noqa: BLE001 - raised again where the items are taken
        how = error
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()
        queue.end(how)

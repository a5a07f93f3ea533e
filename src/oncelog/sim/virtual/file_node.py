"""One file of a simulated disk: its current bytes, its durable bytes, and an open handle."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from oncelog.ports import Buffer

_KEEP_ALL: Final = 0
_LOSE_ALL: Final = 1
_TORN: Final = 2
_ZEROED: Final = 3


class PowerLost(BaseException):
    """The machine stopped in the middle of an operation; only ``MemoryFiles.crash`` may follow. A BaseException, so
    that error handlers do not catch it.
    """


class ProcessKilled(PowerLost):
    """Only the process stopped in the middle of an operation: its writes survive."""


class FileNode:
    """A file's current bytes, and the bytes that are certain to survive a crash."""

    __slots__ = ("data", "durable", "modified_ms", "rewritten")

    def __init__(self, now_ms: int) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        # Truncated below the durable end since the last sync: `durable` is not a prefix of `data`.
        self.rewritten = False
        self.modified_ms = now_ms

    def sync(self) -> None:
        if self.rewritten:
            self.durable = bytearray(self.data)
            self.rewritten = False
        else:
            self.durable += self.data[len(self.durable) :]

    def crash(self, entropy: random.Random) -> None:
        if not self.rewritten or entropy.random() < 0.5:
            durable = 0 if self.rewritten else len(self.durable)
            outcome = entropy.randrange(4)
            kept = entropy.randint(durable, len(self.data))
            if outcome == _LOSE_ALL:
                del self.data[durable:]
            elif outcome == _TORN:
                del self.data[kept:]
            elif outcome == _ZEROED:
                self.data[kept:] = bytes(len(self.data) - kept)
            if self.rewritten and outcome != _KEEP_ALL:
                self.data = bytearray(self.durable)
        else:
            self.data = bytearray(self.durable)
        self.durable = bytearray(self.data)
        self.rewritten = False


class Disk(Protocol):
    """The disk as seen by its open files."""

    now_ms: Callable[[], int]
    # Number of crashes: handles of an earlier generation are dead.
    generation: int

    def changing(self) -> None:
        """Called before a change. Raises PowerLost at the chosen moment."""

    def reading(self) -> None:
        """Called before a read. Raises OSError on a failing disk."""

    def take_space(self, count: int) -> None:
        """Allocate ``count`` bytes. Raises OSError when the disk is full."""

    def sync_or_fail(self) -> None:
        """Called before a sync. Raises OSError or PowerLost."""


class MemoryFile:
    __slots__ = ("_disk", "_generation", "_node")

    def __init__(self, disk: Disk, node: FileNode) -> None:
        self._disk = disk
        self._node = node
        self._generation = disk.generation

    def size(self) -> int:
        return len(self._alive().data)

    def append(self, chunks: Sequence[Buffer]) -> int:
        node = self._alive()
        added = b"".join(chunks)
        self._disk.changing()
        self._disk.take_space(len(added))
        position = len(node.data)
        node.data += added
        node.modified_ms = self._disk.now_ms()
        return position

    def read(self, position: int, size: int) -> bytes:
        self._disk.reading()
        return bytes(self._alive().data[position : position + size])

    def read_cached(self, position: int, size: int) -> bytes | None:
        return self.read(position, size)

    def truncate(self, size: int) -> None:
        node = self._alive()
        self._disk.changing()
        if size < len(node.durable):
            node.rewritten = True
        self._disk.take_space(min(0, size - len(node.data)))
        if size > len(node.data):
            node.data += bytes(size - len(node.data))
        del node.data[size:]
        node.modified_ms = self._disk.now_ms()

    def sync(self) -> None:
        node = self._alive()
        self._disk.sync_or_fail()
        node.sync()

    def close(self) -> None: ...

    def _alive(self) -> FileNode:
        if self._generation != self._disk.generation:
            raise OSError(errno.EBADF, "file of a machine that crashed")
        return self._node

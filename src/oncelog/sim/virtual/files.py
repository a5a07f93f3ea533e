"""Files in memory that track syncs: the ``Files`` port for tests and the simulator.

:meth:`MemoryFiles.crash` keeps what ``sync`` and ``sync_directory`` made durable and, by seed, part of the rest:
appended bytes may be cut anywhere or become zeros, a truncation may be undone, and directory changes survive up to some
point, in order (as on a journalling file system). Handles from before are dead.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Final, NoReturn

from oncelog.ports import DiskErrors, OpenFile
from oncelog.sim.virtual.file_node import FileNode, MemoryFile
from oncelog.sim.virtual.file_node import PowerLost as PowerLost
from oncelog.sim.virtual.file_node import ProcessKilled as ProcessKilled

# Path to file; None is a directory.
Names = dict[str, "FileNode | None"]
_NAME_MAX: Final = 255
# A change of a path: its new node, and True if the path exists afterwards.
Change = tuple[str, "FileNode | None", bool]


class MemoryFiles:
    """A directory tree in memory. ``now_ms`` timestamps files; ``capacity`` is the disk's size in bytes (None:
    unlimited).
    """

    def __init__(self, *, now_ms: Callable[[], int] = lambda: 0, capacity: int | None = None) -> None:
        self.now_ms = now_ms
        self.capacity = capacity
        self.generation = 0
        self.errors = DiskErrors()
        # Every read and every change fails with EIO.
        self.is_failing = False
        self._written = 0
        self._failing_syncs, self._sync_error = 0, errno.EIO
        self._changes_left: int | None = None
        self._syncs_left: int | None = None
        self._end: type[PowerLost] = PowerLost
        self._names: Names = {"": None}
        # Directory to the names in it.
        self._children: dict[str, set[str]] = {"": set()}
        self._durable_names: Names = {"": None}
        # Directory changes that are not durable yet, in order: (directories, changes).
        self._journal: list[tuple[frozenset[str], list[Change]]] = []
        # Changes of names that are not in the journal yet.
        self._changed: list[Change] = []

    def open(self, path: str, *, create: bool = False) -> OpenFile:
        node = self._names.get(path)
        if node is None:
            if path in self._names:
                raise IsADirectoryError(errno.EISDIR, "is a directory", path)
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._require_directory(_parent(path))
            _require_short_name(path)
            self.changing()
            node = FileNode(self.now_ms())
            self._name(path, node)
            self._journal_changes(_parent(path))
        return MemoryFile(self, node)

    def list(self, directory: str) -> list[str]:
        self._require_directory(directory)
        return sorted(self._children[directory])

    def size(self, path: str) -> int | None:
        node = self._names.get(path)
        return None if node is None else len(node.data)

    def modified_ms(self, path: str) -> int:
        return self._node(path).modified_ms

    def make_directory(self, path: str) -> None:
        parent = ""
        for part in path.split("/"):
            prefix = f"{parent}/{part}" if parent else part
            if prefix not in self._names:
                _require_short_name(prefix)
                self._name(prefix, None)
                self._journal_changes(parent)
            self._require_directory(prefix)
            parent = prefix

    def rename(self, old: str, new: str) -> None:
        if old not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        self._require_directory(_parent(new))
        _require_short_name(new)
        self.changing()
        for path in self._at_or_below(old):
            self._name(new + path[len(old) :], self._unname(path))
        self._journal_changes(_parent(old), _parent(new))

    def remove(self, path: str) -> None:
        if path not in self._names:
            return
        self.changing()
        for name in self._at_or_below(path):
            node = self._unname(name)
            if node is not None:
                self._written -= len(node.data)
        self._journal_changes(_parent(path))

    def sync_directory(self, path: str) -> None:
        self._require_directory(path)
        self.sync_or_fail()
        for index in range(len(self._journal) - 1, -1, -1):
            if path in self._journal[index][0]:
                self._make_durable(index + 1)
                return

    def crash(self, seed: int) -> None:
        entropy = random.Random(seed)
        self._make_durable(entropy.randint(0, len(self._journal)))
        self._journal.clear()
        names = self._durable_names
        for node in {id(node): node for node in names.values() if node is not None}.values():
            node.crash(entropy)
        self._names = dict(names)
        self._children = {path: set() for path, node in names.items() if node is None}
        for path in names:
            self._list_in_parent(path)
        self._failing_syncs = 0
        self._disarm()
        self.generation += 1

    def flip_bit(self, path: str, bit: int) -> None:
        node = self._node(path)
        node.data[bit // 8] ^= 1 << (bit % 8)
        if bit // 8 < len(node.durable):
            node.durable[bit // 8] = node.data[bit // 8]

    def node(self, path: str) -> FileNode:
        return self._node(path)

    def has_node(self, node: FileNode) -> bool:
        return any(name is node for name in self._names.values())

    def paths(self, *endings: str) -> Sequence[str]:
        """All non-empty files whose names end with one of ``endings``, in order."""
        return sorted(path for path, node in self._names.items() if node and node.data and path.endswith(endings))

    def durable_files(self, directory: str) -> Sequence[tuple[str, FileNode]]:
        """The files in a directory whose names survive a power cut."""
        start = f"{directory}/"
        durable, now = self._durable_names, self._names
        names = sorted(start + name for name in self._children.get(directory, ()))
        return [(path, node) for path in names if (node := now[path]) is not None and durable.get(path) is node]

    def files_before_changes(self, directory: str) -> Sequence[tuple[str, FileNode]]:
        """The files in a directory after a power cut that undoes all name changes since its last sync."""
        start = f"{directory}/"
        entries = ((path, node) for path, node in self._durable_names.items() if path.startswith(start))
        return sorted(((path, node) for path, node in entries if node is not None), key=itemgetter(0))

    def overwrite(self, path: str, data: bytes) -> None:
        """Replace a file's content durably, without any check."""
        node = self._node(path)
        node.data = bytearray(data)
        node.durable = bytearray(data)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._node(path).modified_ms = modified_ms

    def content(self, path: str) -> bytes:
        return bytes(self._node(path).data)

    def fail_syncs(self, count: int = 1, code: int = errno.EIO) -> None:
        self._failing_syncs, self._sync_error = count, code

    def lose_power_after(self, changes: int, *, only_process: bool = False) -> None:
        """Let every change after the next ``changes`` raise PowerLost (``only_process``: ProcessKilled)."""
        self._changes_left = changes
        self._end = ProcessKilled if only_process else PowerLost

    def lose_power_at_sync(self, syncs: int) -> None:
        """Let every sync after the next ``syncs`` raise PowerLost, with nothing made durable."""
        self._syncs_left = syncs

    def process_died(self) -> None:
        """The killed process is gone; its successor may use the files."""
        self._disarm()

    def changing(self) -> None:
        self.reading()
        if self._changes_left is not None:
            if self._changes_left == 0:
                raise self._end
            self._changes_left -= 1

    def reading(self) -> None:
        if self.is_failing:
            self._fail(errno.EIO, "input/output error")

    @contextmanager
    def examined(self) -> Iterator[MemoryFiles]:
        """The files for a checker: a failing disk is readable in this context."""
        is_failing, self.is_failing = self.is_failing, False
        try:
            yield self
        finally:
            self.is_failing = is_failing

    def _fail(self, number: int, text: str) -> NoReturn:
        error = OSError(number, text)
        self.errors.note(error)
        raise error

    def _disarm(self) -> None:
        self._changes_left = self._syncs_left = None
        self._end = PowerLost

    @property
    def used(self) -> int:
        return self._written

    def space(self) -> tuple[int, int]:
        """Size and free space of the disk in bytes; −1 each if unlimited."""
        return (-1, -1) if self.capacity is None else (self.capacity, max(0, self.capacity - self._written))

    def disarm(self) -> None:
        self.capacity = None
        self.is_failing = False
        self._failing_syncs = 0
        self._disarm()

    def take_space(self, size: int) -> None:
        """Allocate ``size`` bytes, or free them if negative. Raises OSError (ENOSPC) when the disk is full."""
        if self.capacity is not None and size > 0 and self._written + size > self.capacity:
            self._fail(errno.ENOSPC, "no space left on device")
        self._written += size

    def sync_or_fail(self) -> None:
        """Called before a sync. Fails as scheduled, or raises PowerLost at the chosen one."""
        self.changing()
        if self._syncs_left is not None:
            if self._syncs_left == 0:
                raise PowerLost
            self._syncs_left -= 1
        if self._failing_syncs:
            self._failing_syncs -= 1
            self._fail(self._sync_error, "input/output error")

    def _node(self, path: str) -> FileNode:
        node = self._names.get(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node

    def _at_or_below(self, path: str) -> Sequence[str]:
        # A file alone, or a directory with everything below it.
        if self._names[path] is not None:
            return [path]
        return [name for name in self._names if name == path or name.startswith(f"{path}/")]

    def _require_directory(self, path: str) -> None:
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        if self._names[path] is not None:
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)

    def _name(self, path: str, node: FileNode | None) -> None:
        """Let a path name a file, or (None) a directory."""
        self._names[path] = node
        if node is None:
            self._children.setdefault(path, set())
        self._list_in_parent(path)
        self._changed.append((path, node, True))

    def _unname(self, path: str) -> FileNode | None:
        node = self._names.pop(path)
        if node is None:
            self._children.pop(path, None)
        parent, _, name = path.rpartition("/")
        if parent in self._children:
            self._children[parent].discard(name)
        self._changed.append((path, None, False))
        return node

    def _list_in_parent(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        if path:
            self._children[parent].add(name)

    def _journal_changes(self, *directories: str) -> None:
        # Add the changes since the last call to the journal as one entry: a crash keeps all of them or none.
        self._journal.append((frozenset(directories), self._changed))
        self._changed = []

    def _make_durable(self, count: int) -> None:
        names = self._durable_names
        for _, changes in self._journal[:count]:
            for path, node, exists in changes:
                if exists:
                    names[path] = node
                else:
                    del names[path]
        del self._journal[:count]


def _require_short_name(path: str) -> None:
    """Raises OSError for a name that is too long for a file system."""
    if len(path.rpartition("/")[2].encode()) > _NAME_MAX:
        raise OSError(errno.ENAMETOOLONG, "file name too long", path)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]

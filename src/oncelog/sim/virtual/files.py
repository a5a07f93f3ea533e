"""Files in memory that know what was synced: the ``Files`` port for tests and the simulator.

The rule: what was not synced may be lost. :meth:`MemoryFiles.crash` keeps what ``sync`` and ``sync_directory`` made
durable and, by seed, some of the rest: appended bytes may be cut anywhere or come back as zeros, a truncation may not
have happened, and directory changes survive up to some point, in order (as a journalling file system has it).
Handles from before a crash are dead.
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

Names = dict[str, "FileNode | None"]
"""Path to file; None is a directory."""
_NAME_MAX: Final = 255
Change = tuple[str, "FileNode | None", bool]
"""A change of a path: the node it names, and whether it names one at all."""


class MemoryFiles:
    """A tree in memory. ``now_ms`` stamps files; ``capacity`` is the size of the disk in bytes (None: endless)."""

    def __init__(self, *, now_ms: Callable[[], int] = lambda: 0, capacity: int | None = None) -> None:
        self.now_ms = now_ms
        self.capacity = capacity
        self.generation = 0
        self.errors = DiskErrors()
        self.is_failing = False
        """Every read and every change fails with EIO."""
        self._written = 0
        self._failing_syncs, self._sync_error = 0, errno.EIO
        self._changes_left: int | None = None
        self._syncs_left: int | None = None
        self._end: type[PowerLost] = PowerLost
        self._names: Names = {"": None}
        self._children: dict[str, set[str]] = {"": set()}
        """Directory to the names in it."""
        self._durable_names: Names = {"": None}
        self._journal: list[tuple[frozenset[str], list[Change]]] = []
        """Directory changes since the last sync that covers them, in order: (directories touched, what became)."""
        self._changed: list[Change] = []
        """Changes of names that are not in the journal yet."""

    # Files

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
            self._note(_parent(path))
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
            here = f"{parent}/{part}" if parent else part
            if here not in self._names:
                _require_short_name(here)
                self._name(here, None)
                self._note(parent)
            self._require_directory(here)
            parent = here

    def rename(self, old: str, new: str) -> None:
        if old not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        self._require_directory(_parent(new))
        _require_short_name(new)
        self.changing()
        for path in self._at_or_below(old):
            self._name(new + path[len(old) :], self._unname(path))
        self._note(_parent(old), _parent(new))

    def remove(self, path: str) -> None:
        if path not in self._names:
            return
        self.changing()
        for name in self._at_or_below(path):
            node = self._unname(name)
            if node is not None:
                self._written -= len(node.data)
        self._note(_parent(path))

    def sync_directory(self, path: str) -> None:
        self._require_directory(path)
        self.sync_or_fail()
        for index in range(len(self._journal) - 1, -1, -1):
            if path in self._journal[index][0]:
                self._settle(index + 1)
                return

    # Trouble on request

    def crash(self, seed: int) -> None:
        """Lose power: keep what is durable and, by seed, part of the rest."""
        entropy = random.Random(seed)
        self._settle(entropy.randint(0, len(self._journal)))
        self._journal.clear()
        names = self._durable_names
        for node in {id(node): node for node in names.values() if node is not None}.values():
            node.crash(entropy)
        self._names = dict(names)
        self._children = {path: set() for path, node in names.items() if node is None}
        for path in names:
            self._list_in_parent(path)
        self._failing_syncs = 0
        self._nothing_ends()
        self.generation += 1

    def flip_bit(self, path: str, bit: int) -> None:
        """Change one bit of a file, as a bad disk does: for good, where that part of it is on the disk."""
        node = self._node(path)
        node.data[bit // 8] ^= 1 << (bit % 8)
        if bit // 8 < len(node.durable):
            node.durable[bit // 8] = node.data[bit // 8]

    def node(self, path: str) -> FileNode:
        return self._node(path)

    def has_node(self, node: FileNode) -> bool:
        """True while some path names the file."""
        return any(name is node for name in self._names.values())

    def paths(self, *endings: str) -> Sequence[str]:
        """All files that hold something and whose names end like one of ``endings``, in order."""
        return sorted(path for path, node in self._names.items() if node and node.data and path.endswith(endings))

    def durable_files(self, directory: str) -> Sequence[tuple[str, FileNode]]:
        """The files in a directory whose names survive a power cut."""
        start = f"{directory}/"
        durable, now = self._durable_names, self._names
        names = sorted(start + name for name in self._children.get(directory, ()))
        return [(path, node) for path in names if (node := now[path]) is not None and durable.get(path) is node]

    def files_before_changes(self, directory: str) -> Sequence[tuple[str, FileNode]]:
        """The files in a directory after a power cut that takes all changes of names since its last sync."""
        start = f"{directory}/"
        found = ((path, node) for path, node in self._durable_names.items() if path.startswith(start))
        return sorted(((path, node) for path, node in found if node is not None), key=itemgetter(0))

    def overwrite(self, path: str, data: bytes) -> None:
        """Replace all a file holds, behind everybody's back."""
        node = self._node(path)
        node.data = bytearray(data)
        node.durable = bytearray(data)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Say when a file was changed last."""
        self._node(path).modified_ms = modified_ms

    def content(self, path: str) -> bytes:
        return bytes(self._node(path).data)

    def fail_syncs(self, count: int = 1, code: int = errno.EIO) -> None:
        """Let the next ``count`` syncs fail with an error, as one of the disk does unless another is given."""
        self._failing_syncs, self._sync_error = count, code

    def lose_power_after(self, changes: int, *, only_process: bool = False) -> None:
        """Let every change after the next ``changes`` ones raise PowerLost (``only_process``: ProcessKilled)."""
        self._changes_left = changes
        self._end = ProcessKilled if only_process else PowerLost

    def lose_power_at_sync(self, syncs: int) -> None:
        """Let every sync after the next ``syncs`` ones raise PowerLost, with what it was to make durable not so."""
        self._syncs_left = syncs

    def let_process_die(self) -> None:
        """The process that was to be killed is gone; another may go on."""
        self._nothing_ends()

    def changing(self) -> None:
        """Something is about to be changed."""
        self.reading()
        if self._changes_left is not None:
            if self._changes_left == 0:
                raise self._end
            self._changes_left -= 1

    def reading(self) -> None:
        """Something is about to be read. Raises OSError (EIO) on a failing disk."""
        if self.is_failing:
            self._fail(errno.EIO, "input/output error")

    @contextmanager
    def examined(self) -> Iterator[MemoryFiles]:
        """The files as they are on the disk: in here a failing disk is read, too, by a checker and not by a broker."""
        is_failing, self.is_failing = self.is_failing, False
        try:
            yield self
        finally:
            self.is_failing = is_failing

    def _fail(self, number: int, text: str) -> NoReturn:
        error = OSError(number, text)
        self.errors.note(error)
        raise error

    def _nothing_ends(self) -> None:
        self._changes_left = self._syncs_left = None
        self._end = PowerLost

    @property
    def used(self) -> int:
        return self._written

    def space(self) -> tuple[int, int]:
        """Size of the disk and what is free on it, in bytes; −1 each where it is endless."""
        return (-1, -1) if self.capacity is None else (self.capacity, max(0, self.capacity - self._written))

    def be_well(self) -> None:
        """No trouble any more."""
        self.capacity = None
        self.is_failing = False
        self._failing_syncs = 0
        self._nothing_ends()

    def take_space(self, size: int) -> None:
        """Account for ``size`` more bytes (or fewer). Raises OSError (ENOSPC) when the disk is full."""
        if self.capacity is not None and size > 0 and self._written + size > self.capacity:
            self._fail(errno.ENOSPC, "no space left on device")
        self._written += size

    def sync_or_fail(self) -> None:
        """Fail a sync as asked for; PowerLost at the one that was chosen for it."""
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
        """A file alone; a directory with all that is in it."""
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
        """Let a path name nothing any more; what it named."""
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

    def _note(self, *directories: str) -> None:
        """Join the changes since the last time into one of these directories: it survives whole or not at all."""
        self._journal.append((frozenset(directories), self._changed))
        self._changed = []

    def _settle(self, count: int) -> None:
        """The first ``count`` changes are durable."""
        names = self._durable_names
        for _, changes in self._journal[:count]:
            for path, node, there in changes:
                if there:
                    names[path] = node
                else:
                    del names[path]
        del self._journal[:count]


def _require_short_name(path: str) -> None:
    """Raise OSError for a name that disks do not take."""
    if len(path.rpartition("/")[2].encode()) > _NAME_MAX:
        raise OSError(errno.ENAMETOOLONG, "file name too long", path)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]

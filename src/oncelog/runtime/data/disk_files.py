"""The ``Files`` port over the operating system: real files below one data directory.

An ``OpenFile`` names a file; it is not a descriptor. Descriptors are opened on demand and the least recently used
closed, so that tens of thousands of segments fit under ``ulimit -n``. A renamed file is followed. A removed one keeps
its descriptor while an ``OpenFile`` for it exists: a reader in the middle of a response sees no gap. Reads may come
from any thread: a descriptor in use is never closed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from oncelog.base.disk_errors import OUT_OF_DESCRIPTORS
from oncelog.base.private_files import DIRECTORY_MODE, FILE_MODE
from oncelog.listening.descriptors import add_cache, remove_cache, share_of_cache
from oncelog.ports import Buffer, DiskErrors, OpenFile

LOCK_FILE: Final = ".lock"
_VECTOR_MAX: Final = 1024
_SCRATCH_SIZE: Final = 1 << 20
_HOT_TAIL: Final = 64 << 20
_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)
_UNSUPPORTED: Final = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_NO_DESCRIPTOR: Final = -1


class DirectoryInUse(Exception):
    """Another process holds the lock of the data directory."""


class DiskFile:
    """A file by name, opened on demand. Appends and truncation come from one thread, reads from any."""

    __slots__ = ("__weakref__", "_descriptor", "_detached", "_files", "_pins", "_size", "path")

    def __init__(self, files: DiskFiles, path: str) -> None:
        self._files = files
        self.path = path
        self._descriptor = _NO_DESCRIPTOR
        self._pins = 0
        self._detached = False
        self._size = -1

    def size(self) -> int:
        if self._size < 0:
            descriptor = self._files.acquire(self)
            try:
                self._size = os.fstat(descriptor).st_size
            finally:
                self._files.release(self)
        return self._size

    def append(self, chunks: Sequence[Buffer]) -> int:
        start = self.size()
        descriptor = self._files.acquire(self)
        try:
            self._size = start + _write_all(descriptor, chunks, start)
        except OSError as error:
            self._files.errors.note(error)
            # A partial write must not remain before the next append.
            os.ftruncate(descriptor, start)
            raise
        finally:
            self._files.release(self)
        return start

    def read(self, position: int, size: int) -> bytes:
        descriptor = self._files.acquire(self)
        try:
            data = os.pread(descriptor, size, position)
            if len(data) == size or not data:
                return data
            parts = [data]
            read = len(data)
            while read < size:
                data = os.pread(descriptor, size - read, position + read)
                if not data:
                    break
                parts.append(data)
                read += len(data)
            return b"".join(parts)
        except OSError as error:
            self._files.errors.note(error)
            raise
        finally:
            self._files.release(self)

    def read_cached(self, position: int, size: int) -> bytes | None:
        if position + size > self.size():
            size = max(0, self._size - position)
        if not self._files.nowait:
            # Without the flag, only the newest bytes are certainly in the page cache.
            return self.read(position, size) if position >= self._size - _HOT_TAIL else None
        descriptor = self._files.acquire(self)
        try:
            return self._read_nowait(descriptor, position, size)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                self._files.errors.note(error)
                raise
            self._files.nowait = False
        finally:
            self._files.release(self)
        return self.read_cached(position, size)

    def _read_nowait(self, descriptor: int, position: int, size: int) -> bytes | None:
        scratch = self._files.scratch()
        parts: list[bytes] = []
        read = 0
        while read < size:
            view = scratch[: min(size - read, _SCRATCH_SIZE)]
            try:
                count = os.preadv(descriptor, [view], position + read, _NOWAIT)
            except BlockingIOError:
                return None
            if count == 0:
                break
            if count == size:
                return bytes(view[:count])
            parts.append(bytes(view[:count]))
            read += count
        return b"".join(parts)

    def truncate(self, size: int) -> None:
        descriptor = self._files.acquire(self)
        try:
            os.ftruncate(descriptor, size)
            self._size = size
        except OSError as error:
            self._files.errors.note(error)
            raise
        finally:
            self._files.release(self)

    def sync(self) -> None:
        descriptor = self._files.acquire(self)
        try:
            os.fdatasync(descriptor)
        except OSError as error:
            self._files.errors.note(error)
            raise
        finally:
            self._files.release(self)

    def close(self) -> None:
        self._files.close_descriptor(self)

    def __del__(self) -> None:
        # No lock: no other thread can reach this object, and the collector may run while the lock is held.
        if self._descriptor != _NO_DESCRIPTOR:
            os.close(self._descriptor)
            self._files.note_closed()


class DiskFiles:
    """The files below ``root``, which is created if missing, for its owner only. ``max_open_files`` defaults to this
    directory's share of the descriptors for data files.
    """

    def __init__(self, root: str | Path, *, max_open_files: int | None = None) -> None:
        self._root = os.path.abspath(root)
        os.makedirs(self._root, mode=DIRECTORY_MODE, exist_ok=True)
        self._lock = threading.Lock()
        self._recent: OrderedDict[int, DiskFile] = OrderedDict()
        self._by_directory: dict[str, WeakValueDictionary[str, DiskFile]] = {}
        self._local = threading.local()
        self._max_open = max_open_files
        self._lock_descriptor = _NO_DESCRIPTOR
        self.nowait = bool(_NOWAIT)
        self.errors = DiskErrors()
        add_cache(self)

    def open_count(self) -> int:
        """Open descriptors that may be closed."""
        return len(self._recent)

    def shrink(self, most: int) -> None:
        """Close the least recently used files until ``most`` are open; those in use stay open."""
        with self._lock:
            self._evict(most)

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.errors.note(error)
            raise

    @property
    def root(self) -> str:
        return self._root

    def lock(self) -> None:
        """Raises DirectoryInUse if another process has it."""
        descriptor = os.open(self._path(LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise DirectoryInUse(f"{self._root} is in use by another broker") from None
        self._lock_descriptor = descriptor

    def close(self) -> None:
        remove_cache(self)
        with self._lock:
            for file in list(self._recent.values()):
                self._drop(file)
        if self._lock_descriptor != _NO_DESCRIPTOR:
            os.close(self._lock_descriptor)
            self._lock_descriptor = _NO_DESCRIPTOR

    def open(self, path: str, *, create: bool = False) -> OpenFile:
        directory, name = _split(path)
        with self._lock:
            open_files = self._by_directory.setdefault(directory, WeakValueDictionary())
            file = open_files.get(name)
            if file is None:
                file = DiskFile(self, path)
                self._open(file, os.O_CREAT if create else 0)
                open_files[name] = file
        return file

    def list(self, directory: str) -> list[str]:
        return sorted(os.listdir(self._path(directory)))

    def size(self, path: str) -> int | None:
        try:
            return os.stat(self._path(path)).st_size
        except FileNotFoundError:
            return None

    def space(self) -> tuple[int, int]:
        """Size of the volume, and its free bytes for this user."""
        statistics = os.statvfs(self._root)
        return statistics.f_blocks * statistics.f_frsize, statistics.f_bavail * statistics.f_frsize

    def modified_ms(self, path: str) -> int:
        return os.stat(self._path(path)).st_mtime_ns // 1_000_000

    def make_directory(self, path: str) -> None:
        with self._noting():
            os.makedirs(self._path(path), mode=DIRECTORY_MODE, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        with self._noting(), self._lock:
            if new in self._by_directory or old in self._by_directory:
                os.rename(self._path(old), self._path(new))
                self._follow_directory(old, new)
                return
            self._detach(new)
            os.rename(self._path(old), self._path(new))
            file = self._forget(old)
            if file is not None:
                file.path = new
                directory, name = _split(new)
                self._by_directory.setdefault(directory, WeakValueDictionary())[name] = file

    def remove(self, path: str) -> None:
        with self._noting(), self._lock:
            open_files = self._by_directory.pop(path, None)
            if open_files is not None:
                for file in list(open_files.values()):
                    self._keep_open(file)
            self._detach(path)
            absolute = self._path(path)
            try:
                os.unlink(absolute)
            except FileNotFoundError:
                return
            except (IsADirectoryError, PermissionError):
                from shutil import rmtree  # imports the archive formats; most starts remove nothing

                rmtree(absolute)

    def sync_directory(self, path: str) -> None:
        with self._noting():
            with self._lock:
                # A rename or a new file is durable only once its directory is synced.
                descriptor = self._descriptor_of(self._path(path), os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

        # Used by DiskFile

    def acquire(self, file: DiskFile) -> int:
        """The file's descriptor, opened if necessary, and kept open until :meth:`release`."""
        with self._lock:
            if file._descriptor == _NO_DESCRIPTOR:
                self._open(file, 0)
            elif not file._detached:
                self._recent.move_to_end(id(file))
            file._pins += 1
            return file._descriptor

    def release(self, file: DiskFile) -> None:
        with self._lock:
            file._pins -= 1

    def close_descriptor(self, file: DiskFile) -> None:
        """Close the descriptor unless it is in use; a removed file stays readable for its holders."""
        with self._lock:
            if file._descriptor != _NO_DESCRIPTOR and not file._pins and not file._detached:
                self._drop(file)

    def note_closed(self) -> None:
        """A collected file has closed its descriptor; its entry has left the table already."""

    def scratch(self) -> memoryview:
        """The calling thread's buffer for non-blocking reads."""
        buffer: memoryview | None = getattr(self._local, "scratch", None)
        if buffer is None:
            buffer = self._local.scratch = memoryview(bytearray(_SCRATCH_SIZE))
        return buffer

        # Called with the lock held

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _open(self, file: DiskFile, flags: int) -> None:
        with self._noting():
            descriptor = self._descriptor_of(self._path(file.path), os.O_RDWR | flags)
        file._descriptor = descriptor
        self._recent[id(file)] = file
        self._evict(self._max_open or share_of_cache())

    def _descriptor_of(self, path: str, flags: int) -> int:
        """Open a file or directory. If the process is out of descriptors, half of the cached ones are closed first.
        Raises OSError."""
        try:
            return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS:
                raise
        self._evict(len(self._recent) // 2)
        return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)

    def _evict(self, most: int) -> None:
        """Close the least recently used files not in use."""
        for _ in range(len(self._recent)):
            if len(self._recent) <= most:
                return
            key, file = next(iter(self._recent.items()))
            if file._pins:
                self._recent.move_to_end(key)
            else:
                self._drop(file)

    def _drop(self, file: DiskFile) -> None:
        self._recent.pop(id(file), None)
        descriptor, file._descriptor = file._descriptor, _NO_DESCRIPTOR
        os.close(descriptor)

    def _detach(self, path: str) -> None:
        file = self._forget(path)
        if file is not None:
            self._keep_open(file)

    def _forget(self, path: str) -> DiskFile | None:
        directory, name = _split(path)
        open_files = self._by_directory.get(directory)
        return None if open_files is None else open_files.pop(name, None)

    def _keep_open(self, file: DiskFile) -> None:
        if file._descriptor == _NO_DESCRIPTOR:
            try:
                self._open(file, 0)
            except OSError as error:
                if error.errno in (errno.ENOENT, *OUT_OF_DESCRIPTORS):
                    return  # the removal continues; a reader of the file gets an error
                raise
        file._detached = True
        self._recent.pop(id(file), None)

    def _follow_directory(self, old: str, new: str) -> None:
        open_files = self._by_directory.pop(old, None)
        if open_files is None:
            return
        for name, file in list(open_files.items()):
            file.path = f"{new}/{name}"
        self._by_directory[new] = open_files


def _split(path: str) -> tuple[str, str]:
    directory, _, name = path.rpartition("/")
    return directory, name


def _write_all(descriptor: int, chunks: Sequence[Buffer], position: int) -> int:
    if len(chunks) == 1:
        chunk = chunks[0]
        written = os.pwrite(descriptor, chunk, position)
        if written == len(chunk):
            return written
        pending = [memoryview(chunk)[written:]]
    else:
        written = 0
        pending = [memoryview(chunk) for chunk in chunks if len(chunk)]
    while pending:
        count = os.pwritev(descriptor, pending[:_VECTOR_MAX], position + written)
        written += count
        while pending and count >= len(pending[0]):
            count -= len(pending.pop(0))
        if count:
            pending[0] = pending[0][count:]
    return written

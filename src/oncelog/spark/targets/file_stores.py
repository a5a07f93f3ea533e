"""Stores of table files: pickled with a task, opened where it runs.

Only credentials given as options travel; otherwise each executor uses its own (environment, instance role). A file on a
file system is synced before its name is reported; an upload to an object store is whole or absent.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow.fs import PyFileSystem

from oncelog.spark.table.atomic_swap import fsync

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

_BUFFER_BYTES = 8 * 1024 * 1024


class _SyncedFile:
    """A new local file that is durable, together with its name, once closed."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._file = path, path.open("xb")
        self.write, self.tell, self.flush = self._file.write, self._file.tell, self._file.flush

    @property
    def closed(self) -> bool:
        return self._file.closed

    def close(self) -> None:
        if self._file.closed:
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        fsync(self._path.parent)


@dataclass(frozen=True)
class DirectoryStore:
    """Files below a directory; their paths are absolute, or ``relative`` to it."""

    root: str
    relative: bool
    folder: str = "data"

    def create(self, name: str, levels: str) -> tuple[str, Any]:
        path = Path(self.root, self.folder, levels, name)
        return self._path_text(path), _SyncedFile(path)

    def open(self, path: str) -> IO[bytes]:
        return Path(self.root, path).open("rb")

    def size(self, path: str) -> int:
        return Path(self.root, path).stat().st_size

    def delete(self, path: str) -> None:
        Path(self.root, path).unlink(missing_ok=True)

    def _path_text(self, path: Path) -> str:
        return str(path.relative_to(self.root) if self.relative else path)


@dataclass(frozen=True)
class DeltaStore:
    """Files of a Delta table on an object store, through delta-rs; paths are relative to the table."""

    root: str
    options: Mapping[str, str] = field(repr=False)

    @cached_property
    def _files(self) -> PyFileSystem:
        from deltalake.fs import DeltaStorageHandler

        # Opened on first use, in the process that reads or writes.
        return PyFileSystem(DeltaStorageHandler(self.root, dict(self.options)))

    def __getstate__(self) -> dict[str, Any]:
        # Leave out the connection.
        return {"root": self.root, "options": self.options}

    def create(self, name: str, levels: str) -> tuple[str, pa.NativeFile]:
        path = "/".join(part for part in ("data", levels, name) if part)
        return path, self._files.open_output_stream(path, buffer_size=_BUFFER_BYTES)

    def open(self, path: str) -> pa.NativeFile:
        return self._files.open_input_file(path)

    def size(self, path: str) -> int:
        return int(self._files.get_file_info(path).size)

    def delete(self, path: str) -> None:
        self._files.delete_file(path)


@dataclass(frozen=True)
class IcebergStore:
    """Files of an Iceberg table, through pyiceberg, in the location that the table's properties choose."""

    location: str
    table_properties: Mapping[str, str]
    io_properties: Mapping[str, str] = field(repr=False)

    @cached_property
    def _io(self) -> FileIO:
        from pyiceberg.io import load_file_io

        return load_file_io(dict(self.io_properties), self.location)

    def __getstate__(self) -> dict[str, Any]:
        # Leave out the connection.
        names = ("location", "table_properties", "io_properties")
        return {name: getattr(self, name) for name in names}

    def create(self, name: str, levels: str) -> tuple[str, Any]:
        from pyiceberg.table.locations import load_location_provider

        places = load_location_provider(self.location, dict(self.table_properties))
        path = places.new_data_location(f"{levels}/{name}" if levels else name)
        return path, self._io.new_output(path).create()

    def open(self, path: str) -> Any:
        return self._io.new_input(path).open()

    def size(self, path: str) -> int:
        return len(self._io.new_input(path))

    def delete(self, path: str) -> None:
        self._io.delete(path)

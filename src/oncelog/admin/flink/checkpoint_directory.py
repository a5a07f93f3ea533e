"""Reads the Kafka sinks' state from the directory of a Flink checkpoint or savepoint.

Small states are in ``_metadata`` itself (``state.storage.fs.memory-threshold``), large ones in files beside it, or in
``shared`` and ``taskowned`` beside the checkpoint's directory. Rules:

1. Paths in the metadata are those of the machine that wrote them, and are not trusted: only names below the
   checkpoint's own directory and its two neighbours are opened, and no symbolic links.
2. Bytes are bounded: ``MAX_METADATA_BYTES``, ``MAX_STATE_BYTES`` for each state and ``MAX_TOTAL_BYTES`` for all.
3. A state of a Kafka sink that cannot be read is an error. A guess could leave out a transaction that has to be
   committed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from oncelog.admin.flink.checkpoint_metadata import CheckpointMetadata, OperatorState, StateBytes, read_metadata
from oncelog.admin.flink.data_input import DataInput, FlinkStateError
from oncelog.admin.flink.sink_state import (
    COMMITTER_STATE,
    WRITER_STATE,
    SinkState,
    add_committer_state,
    add_writer_state,
    check_stream,
)
from oncelog.base.units import MIB

METADATA: Final = "_metadata"
MAX_METADATA_BYTES: Final = 256 * MIB
MAX_STATE_BYTES: Final = 64 * MIB
MAX_TOTAL_BYTES: Final = 512 * MIB
MAX_NEIGHBOURS: Final = 10_000
_CHECKPOINT_DIRECTORY: Final = re.compile(r"chk-(\d{1,19})", re.ASCII).fullmatch
_NEIGHBOURS: Final = ("shared", "taskowned")


@dataclass(frozen=True, slots=True)
class FlinkCheckpoint:
    """A checkpoint's id, the time of its ``_metadata``, its Kafka sinks' state, and newer checkpoints beside it."""

    directory: Path
    checkpoint_id: int
    stored_at_ms: int
    sink: SinkState
    newer: list[str]


def read_checkpoint(directory: Path) -> FlinkCheckpoint:
    """The state of all Kafka sinks in a checkpoint's or savepoint's directory. Raises FlinkStateError."""
    # Flink takes the file itself as well.
    if directory.name == METADATA:
        directory = directory.parent
    path = directory / METADATA
    content, stored_at_ms = _read(path, 0, None, MAX_METADATA_BYTES)
    metadata = read_metadata(memoryview(content), str(path))
    sink = SinkState()
    total = 0
    for state in metadata.states:
        if not {COMMITTER_STATE, WRITER_STATE} & state.offsets.keys():
            continue
        read = _content(directory, path, state.content)
        total += len(read)
        if total > MAX_TOTAL_BYTES:
            raise FlinkStateError(f"the states of {directory} have more than {MAX_TOTAL_BYTES // MIB} MiB")
        _add_state(state, read, _name_of(path, state), sink)
    return FlinkCheckpoint(directory, metadata.checkpoint_id, stored_at_ms, sink, _newer(directory, metadata))


def _name_of(path: Path, state: OperatorState) -> str:
    place = path if state.content.path is None else state.content.path
    return f"{place} (state of subtask {state.subtask} of {state.operator!r})"


def _add_state(state: OperatorState, content: memoryview, name: str, sink: SinkState) -> None:
    check_stream(content, name)
    for state_name, add in ((COMMITTER_STATE, add_committer_state), (WRITER_STATE, add_writer_state)):
        for offset in state.offsets.get(state_name, ()):
            if not 0 <= offset <= len(content):
                raise FlinkStateError(f"{name} has {len(content)} bytes, and an element at byte {offset}")
            element = DataInput(content, name)
            element.position = offset
            add(element.blob(), name, sink)


def _content(directory: Path, metadata: Path, state: StateBytes) -> memoryview:
    if state.inline is not None:
        return state.inline
    if state.start < 0 or not 0 <= state.size <= MAX_STATE_BYTES:
        raise FlinkStateError(f"{metadata} names a state of {state.size} bytes; at most {MAX_STATE_BYTES} are read")
    assert state.path is not None
    path = _local_path(directory, metadata, state.path)
    content, _ = _read(path, state.start, state.size, MAX_STATE_BYTES)
    return memoryview(content)


def _local_path(directory: Path, metadata: Path, given: str) -> Path:
    """The file that a path in the metadata means, below this directory or its neighbours (rule 1)."""
    parts = PurePosixPath(given).parts
    for index in range(len(parts) - 1, 0, -1):
        if parts[index - 1] in _NEIGHBOURS:
            base, names = directory.parent / parts[index - 1], parts[index:]
            break
    else:
        base, names = directory, parts[-1:]
    if not names or any(name in ("", ".", "..", "/") or "\0" in name for name in names):
        raise FlinkStateError(f"{metadata} names a state in {given[:200]!r}, which is no file of a checkpoint")
    path = base.joinpath(*names)
    if not path.parent.resolve().is_relative_to(base.resolve()):
        raise FlinkStateError(f"{path} leads out of {base} by a symbolic link")
    return path


def _read(path: Path, start: int, size: int | None, at_most: int) -> tuple[bytes, int]:
    """The bytes of a regular file, and the time of its last change in ms. Raises FlinkStateError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise FlinkStateError(f"{path} is not a file")
            wanted_bytes = status.st_size if size is None else size
            if wanted_bytes > at_most:
                raise FlinkStateError(f"{path} has {wanted_bytes} bytes; at most {at_most} are read")
            file.seek(start)
            content = file.read(wanted_bytes)
    except OSError as error:
        reason = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror or str(error)
        raise FlinkStateError(
            f"{path} cannot be read ({reason}): give the directory of a checkpoint or savepoint, with all its files"
        ) from None
    if len(content) < wanted_bytes:
        raise FlinkStateError(f"{path} ends after {start + len(content)} bytes; {start + wanted_bytes} are expected")
    return content, status.st_mtime_ns // 1_000_000


def _newer(directory: Path, metadata: CheckpointMetadata) -> list[str]:
    """Completed checkpoints beside this one with higher numbers."""
    if _CHECKPOINT_DIRECTORY(directory.name) is None:
        return []
    numbers = []
    try:
        with os.scandir(directory.parent) as entries:
            for count, entry in enumerate(entries):
                match = _CHECKPOINT_DIRECTORY(entry.name)
                if match is not None and int(match[1]) > metadata.checkpoint_id:
                    numbers += [int(match[1])] if (Path(entry.path) / METADATA).is_file() else []
                if count >= MAX_NEIGHBOURS:
                    break
    except OSError:
        return []
    return [f"chk-{number}" for number in sorted(numbers)]

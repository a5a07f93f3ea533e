"""Reads Flink's ``_metadata`` file: which operators have which named states, and where the bytes of these are.

Layout (big-endian; Flink's ``MetadataV3Serializer`` to ``MetadataV6Serializer``): magic number, version, checkpoint id,
master states, operator states. An operator state has an id, the parallelism, the coordinator's state and the states of
the subtasks: managed and raw operator state, managed and raw keyed state, and since version 3 the state of channels.
Version 5 adds the operator's name and uid in front, version 6 merged channel states, version 4 Java properties at the
end, which are not read: Java's serialization is for Java.

All states but the managed operator state are skipped, field by field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from oncelog.admin.flink.data_input import DataInput

MAGIC: Final = 0x4960672D
VERSIONS: Final = range(3, 7)
_MASTER_STATE_MAGIC: Final = -915728746
_FIRST_WITH_NAMES: Final = 5
_FIRST_WITH_MERGED_CHANNELS: Final = 6
MAX_DEPTH: Final = 8
"""Keyed states may contain others (changelogs)."""

# Types of handles.
_NULL: Final = 0
_BYTES: Final = 1
_FILE: Final = 2
_KEY_GROUPS: Final = 3
_OPERATOR_STATE: Final = 4
_INCREMENTAL: Final = 5
_RELATIVE_FILE: Final = 6
_SAVEPOINT_KEY_GROUPS: Final = 7
_CHANGELOG: Final = 8
_CHANGELOG_BYTES: Final = 9
_CHANGELOG_FILE: Final = 10
_INCREMENTAL_2: Final = 11
_KEY_GROUPS_2: Final = 12
_CHANGELOG_FILE_2: Final = 13
_CHANGELOG_2: Final = 14
_SEGMENT: Final = 15
_EMPTY_SEGMENT: Final = 16
_MERGED_OPERATOR_STATE: Final = 17


class StateBytes(NamedTuple):
    """The place of a state's bytes: here (``inline``), or in a file from ``start`` on, ``size`` bytes."""

    inline: memoryview | None = None
    path: str | None = None
    start: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class OperatorState:
    """The managed operator state of one subtask: the offsets of each named state's elements in its bytes."""

    operator: str
    """The operator's name, or its id in hexadecimal digits before version 5."""
    subtask: int
    offsets: dict[str, list[int]]
    content: StateBytes


@dataclass(frozen=True, slots=True)
class CheckpointMetadata:
    version: int
    checkpoint_id: int
    states: list[OperatorState]


def read_metadata(data: memoryview, name: str) -> CheckpointMetadata:
    """The operator states of a checkpoint or savepoint; ``name`` names the file. Raises FlinkStateError."""
    given = DataInput(data, name)
    if given.int32() != MAGIC:
        given.position = 0
        raise given.error("it does not begin as the _metadata file of a Flink checkpoint or savepoint does")
    version = given.int32()
    if version not in VERSIONS:
        raise given.error(f"metadata version {version} is not supported; {VERSIONS[0]} to {VERSIONS[-1]} are")
    checkpoint_id = given.int64()
    if checkpoint_id < 0:
        raise given.error(f"checkpoint id {checkpoint_id} is negative")
    for _ in range(given.count("master states")):
        if given.int32() != _MASTER_STATE_MAGIC:
            raise given.error("a master state has a wrong magic number")
        given.blob()
    states: list[OperatorState] = []
    for _ in range(given.count("operator states")):
        states += _operator(given, version)
    if version < 4:
        given.finish()
    return CheckpointMetadata(version, checkpoint_id, states)


def _operator(given: DataInput, version: int) -> list[OperatorState]:
    name = ""
    if version >= _FIRST_WITH_NAMES:
        name = given.text()
        given.text()
    lower, upper = given.int64(), given.int64()
    name = name or f"{upper & (2**64 - 1):016x}{lower & (2**64 - 1):016x}"
    given.int32()  # the parallelism
    given.int32()  # the largest parallelism
    _stream_state(given)
    # A negative number: the operator has finished and has no state.
    subtasks = given.checked(max(0, given.int32()), "subtasks")
    states: list[OperatorState] = []
    for _ in range(subtasks):
        subtask = given.int32()
        # A negative index: this subtask has finished.
        if subtask >= 0:
            states += _subtask(given, name, subtask, version)
    return states


def _subtask(given: DataInput, operator: str, subtask: int, version: int) -> list[OperatorState]:
    states = []
    if given.int32():
        state = _operator_state(given, operator, subtask)
        if state is not None:
            states.append(state)
    if given.int32():
        _operator_state(given, operator, subtask)
    _skip_keyed_state(given)
    _skip_keyed_state(given)
    for _ in range(2):
        for _ in range(given.count("channel states")):
            _skip_channel(given, version)
    return states


def _operator_state(given: DataInput, operator: str, subtask: int) -> OperatorState | None:
    kind = given.byte()
    if kind == _NULL:
        return None
    if kind not in (_OPERATOR_STATE, _MERGED_OPERATOR_STATE):
        raise given.error(f"operator state of type {kind} is unknown")
    offsets: dict[str, list[int]] = {}
    for _ in range(given.count("named states")):
        name = given.text()
        given.byte()  # the mode of distribution
        offsets[name] = [given.int64() for _ in range(given.count("offsets"))]
    if kind == _MERGED_OPERATOR_STATE:
        given.text()
        given.text()
        given.byte()
    return OperatorState(operator, subtask, offsets, _stream_state(given))


def _stream_state(given: DataInput) -> StateBytes:
    kind = given.byte()
    if kind in (_NULL, _EMPTY_SEGMENT):
        return StateBytes(memoryview(b""))
    if kind == _BYTES:
        given.text()
        return StateBytes(given.blob())
    if kind == _FILE:
        size = given.int64()
        return StateBytes(path=given.text(), size=size)
    if kind == _RELATIVE_FILE:
        path = given.text()
        return StateBytes(path=path, size=given.int64())
    if kind == _SEGMENT:
        start, size = given.int64(), given.int64()
        given.int32()  # the scope
        path = given.text()
        given.text()  # the logical file
        return StateBytes(path=path, start=start, size=size)
    if kind == _KEY_GROUPS:
        _skip_key_groups(given)
        # Not nested any further.
        if given.byte() == _KEY_GROUPS:
            raise given.error("there are key groups within key groups")
        given.position -= 1
        return _stream_state(given)
    raise given.error(f"stream state of type {kind} is unknown")


def _skip_key_groups(given: DataInput) -> None:
    given.int32()
    given.take(8 * given.count("key groups"))


def _skip_keyed_state(given: DataInput, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise given.error(f"keyed states are nested more than {MAX_DEPTH} times")
    kind = given.byte()
    if kind == _NULL:
        return
    if kind in (_KEY_GROUPS, _KEY_GROUPS_2, _SAVEPOINT_KEY_GROUPS):
        _skip_key_groups(given)
        _stream_state(given)
        if kind == _KEY_GROUPS_2:
            given.text()
    elif kind in (_INCREMENTAL, _INCREMENTAL_2):
        _skip_incremental(given, is_second=kind == _INCREMENTAL_2)
    elif kind in (_CHANGELOG, _CHANGELOG_2):
        given.take(16)  # the range of key groups, the size
        for _ in range(2):
            for _ in range(given.count("parts of a changelog")):
                _skip_keyed_state(given, depth + 1)
        given.take(16 if kind == _CHANGELOG_2 else 8)  # the ids of the materialization and of the checkpoint
        given.text()
    elif kind == _CHANGELOG_BYTES:
        given.take(24)  # the range of key groups and of sequence numbers
        for _ in range(given.count("changes")):
            given.int32()
            given.blob()
        given.text()
    elif kind in (_CHANGELOG_FILE, _CHANGELOG_FILE_2):
        given.take(8)  # the range of key groups
        for _ in range(given.count("files of a changelog")):
            given.int64()
            _stream_state(given)
        given.take(16)  # both sizes
        given.text()
        if kind == _CHANGELOG_FILE_2:
            given.text()
    else:
        raise given.error(f"keyed state of type {kind} is unknown")


def _skip_incremental(given: DataInput, *, is_second: bool) -> None:
    given.int64()  # the checkpoint id
    given.text()
    given.take(16 if is_second else 8)  # the range of key groups, and the size
    _stream_state(given)
    for _ in range(2):
        for _ in range(given.count("files of a state")):
            given.text()
            _stream_state(given)
    if is_second:
        given.text()


def _skip_channel(given: DataInput, version: int) -> None:
    if version >= _FIRST_WITH_MERGED_CHANNELS:
        kind = given.byte()
        if kind in (3, 4):
            given.take(12)  # the subtask, the size
            _stream_state(given)
            given.blob()
            return
        if kind not in (1, 2):
            raise given.error(f"channel state of type {kind} is unknown")
    given.take(12)  # the subtask, and the numbers of the channel
    given.take(8 * given.count("offsets"))
    given.int64()
    _stream_state(given)

"""Offsets of consumers in the coordination tree: ``/consumers/GROUP/offsets/TOPIC/PARTITION``, decimal digits.

The paths and values are those of Apache Kafka's consumers up to 1.1 that keep their offsets in ZooKeeper. They write
the same nodes directly: whoever writes last counts, no version is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from oncelog.base.ids import TopicPartition
from oncelog.base.tree import ANY_VERSION, CommitOutcome, Create, Operation, Set
from oncelog.base.units import INT64_MAX
from oncelog.handlers.broker.waits import CommitMetadata, ReadNodes, Steps

ATTEMPTS: Final = 10
"""Each conflict means that somebody else has made or removed one of the nodes."""
MOST_PATHS: Final = 500
"""Nodes of one commit, which is well below what ZooKeeper takes, or read while others wait for the tree."""
MAX_NAME_CHARACTERS: Final = 255
_ROOT: Final = "/consumers"


def offset_path(group_id: str, partition: TopicPartition) -> str | None:
    """The node of a group's offset; None where the group's name cannot be a node's."""
    if group_id in ("", ".", "..") or "/" in group_id or len(group_id) > MAX_NAME_CHARACTERS:
        return None
    if not group_id.isprintable():
        return None
    return f"{_ROOT}/{group_id}/offsets/{partition.topic}/{partition.partition}"


def read_offsets(paths: Sequence[str]) -> Steps[Mapping[str, int] | None]:
    """The offsets that are there, by path; None where the tree cannot be read."""
    found: dict[str, int] = {}
    for start in range(0, len(paths), MOST_PATHS):
        values: Mapping[str, bytes] | None = yield ReadNodes(paths[start : start + MOST_PATHS])
        if values is None:
            return None
        found |= {path: offset for path, value in values.items() if (offset := _offset_of(value)) is not None}
    return found


def write_offsets(values: Mapping[str, bytes]) -> Steps[bool]:
    """Write offsets, making the nodes that are not there; False where the tree could not be written."""
    paths = list(values)
    for start in range(0, len(paths), MOST_PATHS):
        some = {path: values[path] for path in paths[start : start + MOST_PATHS]}
        if not (yield from _write(some)):
            return False
    return True


def _write(values: Mapping[str, bytes]) -> Steps[bool]:
    parents = list(dict.fromkeys(parent for path in values for parent in _parents(path)))
    for _ in range(ATTEMPTS):
        there: Mapping[str, bytes] | None = yield ReadNodes([*parents, *values])
        if there is None:
            return False
        operations: list[Operation] = [Create(parent, b"") for parent in parents if parent not in there]
        for path, value in values.items():
            if path not in there:
                operations.append(Create(path, value))
            elif there[path] != value:
                operations.append(Set(path, value, ANY_VERSION))
        if not operations:
            return True
        outcome: CommitOutcome = yield CommitMetadata(operations)
        if outcome is not CommitOutcome.CONFLICT:
            return outcome is CommitOutcome.COMMITTED
    return False


def _parents(path: str) -> Iterator[str]:
    """The nodes above, from the top."""
    at = path.find("/", 1)
    while at > 0:
        yield path[:at]
        at = path.find("/", at + 1)


def _offset_of(value: bytes) -> int | None:
    text = value.strip()
    if len(text) > len(str(INT64_MAX)) + 1:
        return None
    try:
        offset = int(text)
    except ValueError:
        return None
    return offset if -INT64_MAX <= offset <= INT64_MAX else None

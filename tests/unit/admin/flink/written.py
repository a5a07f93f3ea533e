"""Writes checkpoints as Flink does, field by field, so that tests can write what Flink would not."""

from __future__ import annotations

import struct

from oncelog.client.machine.transaction_values import StoredTransaction

MAGIC = -1189141204


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def int64(value: int) -> bytes:
    return struct.pack(">q", value)


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">H", len(data)) + data


def blob(data: bytes) -> bytes:
    return int32(len(data)) + data


def listed(version: int, elements: list[bytes]) -> bytes:
    """A list as ``SimpleVersionedSerialization`` writes it."""
    return int32(version) + int32(len(elements)) + b"".join(map(blob, elements))


def committable(stored: StoredTransaction) -> bytes:
    return struct.pack(">hq", stored.producer_epoch, stored.producer_id) + text(stored.transactional_id)


def request(committed: bytes, state: int = 0) -> bytes:
    return int32(1) + blob(committed) + int32(0) + int32(state)


def committer(requests: list[bytes], checkpoint_id: int = 7) -> bytes:
    """An element of the committer's state, version 2."""
    subtask = int32(0) + listed(0, requests) + int32(len(requests)) + int32(0)
    checkpoint = int64(checkpoint_id) + int32(1) + listed(2, [subtask])
    return int32(2) + blob(int32(MAGIC) + listed(1, [checkpoint]))


def old_committer(committables: list[bytes]) -> bytes:
    return int32(1) + blob(int32(MAGIC) + listed(1, committables))


def writer(prefix: str, *prepared: str) -> bytes:
    ids = b"".join(text(name) + int64(7) for name in prepared)
    return int32(2) + blob(text(prefix) + int32(0) + int32(1) + int32(0) + int32(len(prepared)) + ids)


def stream(*elements: bytes, compressed: bool = False) -> tuple[bytes, list[int]]:
    """The bytes of an operator state, and the offsets of its elements."""
    data, offsets = int32(6) + bytes([compressed]) + b"names and serializers", []
    for element in elements:
        offsets.append(len(data))
        data += blob(element)
    return data, offsets


def inline(data: bytes) -> bytes:
    return b"\x01" + text("handle") + blob(data)


def in_file(path: str, size: int) -> bytes:
    return b"\x02" + int64(size) + text(path)


def in_segment(path: str, start: int, size: int) -> bytes:
    return b"\x0f" + int64(start) + int64(size) + int32(0) + text(path) + text("logical")


def operator_state(name: str, offsets: list[int], handle: bytes) -> bytes:
    joined = b"".join(map(int64, offsets))
    return b"\x04" + int32(1) + text(name) + b"\x00" + int32(len(offsets)) + joined + handle


def subtask(managed: bytes | None, keyed: bytes = b"\x00") -> bytes:
    state = int32(0) if managed is None else int32(1) + managed
    return int32(0) + state + int32(0) + keyed + b"\x00" + int32(0) + int32(0)


def operator(*subtasks: bytes, version: int = 6) -> bytes:
    names = text("sink") + text("uid") if version >= 5 else b""
    return names + int64(1) + int64(2) + int32(1) + int32(128) + b"\x00" + int32(len(subtasks)) + b"".join(subtasks)


def metadata(*operators: bytes, version: int = 6, checkpoint_id: int = 7) -> bytes:
    master = int32(-915728746) + blob(int32(1) + text("master") + blob(b""))
    head = int32(0x4960672D) + int32(version) + int64(checkpoint_id) + int32(1) + master
    properties = b"java" if version >= 4 else b""
    return head + int32(len(operators)) + b"".join(operators) + properties

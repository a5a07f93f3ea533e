"""Control records, which coordinators write into a partition's log beside the data (KIP-98, KIP-360, KIP-890).

Key: version int16, type int16. An end transaction marker's value: version int16, coordinator epoch int32; fields that
higher versions append are skipped. Applications never see these records.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from oncelog.records.errors import CorruptBatch
from oncelog.records.record import Record

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


class ControlType(IntEnum):
    """Readers skip unknown types."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransactionMarker(NamedTuple):
    committed: bool
    coordinator_epoch: int


def control_type(key: bytes | None) -> ControlType:
    """The type in a control record's key, UNKNOWN if this version does not know it. Raises CorruptBatch."""
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch("control record key shorter than 4 bytes")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatch(f"control record key of version {version}")
    try:
        return ControlType(number)
    except ValueError:
        return ControlType.UNKNOWN


def end_transaction_marker_of(record: Record) -> EndTransactionMarker | None:
    """The marker in a control record, None for another type. Raises CorruptBatch."""
    kind = control_type(record.key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise CorruptBatch("end transaction marker value shorter than 6 bytes")
    # Higher versions append fields: read the known prefix.
    version, coordinator_epoch = _VALUE.unpack_from(record.value)
    if version < 0:
        raise CorruptBatch(f"end transaction marker of version {version}")
    return EndTransactionMarker(kind is ControlType.COMMIT, coordinator_epoch)


def encode_end_transaction_marker(*, committed: bool, coordinator_epoch: int) -> tuple[bytes, bytes]:
    kind = ControlType.COMMIT if committed else ControlType.ABORT
    return _KEY.pack(0, kind), _VALUE.pack(0, coordinator_epoch)

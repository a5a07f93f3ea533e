"""Records of ``__consumer_offsets`` about groups of the newer protocols (KIP-848, KIP-932, KIP-1071): kind and names.

Only keys are read. Values have a schema for each kind, and the broker here writes none of them.
"""

from __future__ import annotations

from typing import Any, Final

from oncelog.records.errors import CorruptBatch
from oncelog.records.internal.primitives import Reader

_MEMBER: Final = "member_id"
_KINDS: Final[dict[int, tuple[str, str | None]]] = {
    3: ("consumer_group", None),
    4: ("consumer_group_partitions", None),
    5: ("consumer_group_member", _MEMBER),
    6: ("consumer_group_target_assignment", None),
    7: ("consumer_group_target_assignment_member", _MEMBER),
    8: ("consumer_group_current_assignment", _MEMBER),
    10: ("share_group_member", _MEMBER),
    11: ("share_group", None),
    12: ("share_group_target_assignment", None),
    13: ("share_group_target_assignment_member", _MEMBER),
    14: ("share_group_current_assignment", _MEMBER),
    15: ("share_group_partitions", None),
    16: ("consumer_group_regular_expression", "regular_expression"),
    17: ("streams_group", None),
    19: ("streams_group_member", _MEMBER),
    20: ("streams_group_target_assignment", None),
    21: ("streams_group_target_assignment_member", _MEMBER),
    22: ("streams_group_current_assignment", _MEMBER),
    23: ("streams_group_topology", None),
}
"""Kinds by the number that a key begins with, each with the name of the field behind the group's id."""


def newer_group_record(number: int | None, key: bytes | None, value: bytes | None) -> dict[str, Any] | None:
    """The kind of a record and the names in its key; None for a key that is none of these."""
    if key is None or number not in _KINDS:
        return None
    kind, further = _KINDS[number]
    reader = Reader(key[2:])
    try:
        row: dict[str, Any] = {"kind": kind, "group": reader.string()}
        if further is not None:
            row[further] = reader.string()
    except CorruptBatch as error:
        return {"kind": kind, "unknown": str(error)}
    return {**row, "deleted": True} if value is None else {**row, "value_bytes": len(value)}

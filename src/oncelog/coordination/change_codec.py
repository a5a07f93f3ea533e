"""Binary encoding of a commit's changes in the adapters' journals.

docs/internals/cluster-tree.md has the layout of a change; a commit is a sequence of them, big-endian. Lengths are
checked against the input.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from oncelog.ports import Change

_PATH: Final = struct.Struct(">I")
_NODE: Final = struct.Struct(">ii")
_GONE: Final = -1


class DamagedJournal(Exception):
    """A journal entry cannot be decoded."""


def encode_changes(changes: Iterable[Change]) -> bytes:
    parts: list[bytes] = []
    for path, value, version in changes:
        name = path.encode()
        parts += (_PATH.pack(len(name)), name, _NODE.pack(version, _GONE if value is None else len(value)))
        if value is not None:
            parts.append(value)
    return b"".join(parts)


def decode_changes(data: bytes) -> tuple[Change, ...]:
    """Decode the changes of a commit. Raises DamagedJournal."""
    changes: list[Change] = []
    at = 0
    try:
        while at < len(data):
            (length,) = _PATH.unpack_from(data, at)
            at += _PATH.size + length
            path = data[at - length : at].decode()
            version, size = _NODE.unpack_from(data, at)
            at += _NODE.size
            if size < _GONE or at + max(size, 0) > len(data):
                raise DamagedJournal(f"an entry of {len(data)} bytes ends within a value of {size}")
            changes.append(Change(path, None if size == _GONE else data[at : at + size], version))
            at += max(size, 0)
    except (struct.error, UnicodeDecodeError) as error:
        raise DamagedJournal(f"an entry of {len(data)} bytes cannot be read: {error}") from None
    return tuple(changes)

"""The protocol's primitive types: how they look in Python and which runtime method reads and writes them."""

from __future__ import annotations

from typing import NamedTuple


class Primitive(NamedTuple):
    """``method`` is the name in Reader and Writer; ``code`` is struct's, None where the size varies."""

    annotation: str
    method: str
    code: str | None
    default: str
    legacy_size: int
    """Least size in bytes in versions that are not flexible."""
    compact_size: int


def _fixed(annotation: str, method: str, code: str, default: str, size: int) -> Primitive:
    return Primitive(annotation, method, code, default, size, size)


PRIMITIVES = {
    "bool": _fixed("bool", "boolean", "?", "False", 1),
    "int8": _fixed("int", "int8", "b", "0", 1),
    "int16": _fixed("int", "int16", "h", "0", 2),
    "uint16": _fixed("int", "uint16", "H", "0", 2),
    "int32": _fixed("int", "int32", "i", "0", 4),
    "int64": _fixed("int", "int64", "q", "0", 8),
    "float64": _fixed("float", "float64", "d", "0.0", 8),
    # Not in runs: struct would pad an id of another length instead of refusing it.
    "uuid": Primitive("bytes", "uuid", None, "NO_UUID", 16, 16),
    "string": Primitive("str", "string", None, '""', 2, 1),
    "bytes": Primitive("bytes", "byte_string", None, 'b""', 4, 1),
    "records": Primitive("Records", "records", None, "None", 4, 1),
}

KIO_TYPES = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}
"""kio's own types by what they are on the wire."""

CONSTANT_PARTS = {
    "?": "BOOL",
    "b": "I8",
    "h": "I16",
    "H": "U16",
    "i": "I32",
    "q": "I64",
    "d": "F64",
}
"""struct's codes in the names of the precompiled layouts."""

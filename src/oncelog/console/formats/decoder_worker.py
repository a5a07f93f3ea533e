"""The decoding process: reads requests from standard input and writes answers to standard output."""

from __future__ import annotations

import base64
import json
import math
import resource
import struct
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from oncelog.base.units import MIB
from oncelog.console.formats.readers import Pairs, Read, avro_reader, protobuf_reader, read_messagepack
from oncelog.console.formats.registered import registered_reader
from oncelog.schemas.values.errors import NotReadable
from oncelog.schemas.wire_format import AVRO

# A message, either way, is the length of a JSON header, the header, the length of the bytes, and the bytes. The first
# has the schemas; every other one asks for a value as text. The process ends when its input does.

MEMORY_BYTES: Final = 256 * MIB
DEEPEST: Final = 100
MESSAGEPACK: Final = -1  # Takes the place of a schema's index.
REGISTERED: Final = -2  # The same; the schema is a registry's, by its key.
_LENGTH: Final = struct.Struct(">I")


def send(stream: BinaryIO, header: Any, data: bytes = b"") -> None:
    text = json.dumps(header).encode()
    stream.write(_LENGTH.pack(len(text)) + text + _LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def receive(stream: BinaryIO) -> tuple[Any, bytes]:
    """Read a message. Raises EOFError."""
    header = json.loads(_exactly(stream, _LENGTH.unpack(_exactly(stream, _LENGTH.size))[0]))
    return header, _exactly(stream, _LENGTH.unpack(_exactly(stream, _LENGTH.size))[0])


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def text_of(value: Any, most: int, indent: int | None) -> tuple[str, bool]:
    """JSON of a value, cut after ``most`` characters, and True if cut. Raises RecursionError for nesting deeper than
    ``DEEPEST``."""
    pieces, size = [], 0
    for piece in _pieces(value, indent, 0):
        pieces.append(piece)
        size += len(piece)
        if size > most:
            return "".join(pieces)[:most], True
    return "".join(pieces), False


def _pieces(value: Any, indent: int | None, depth: int) -> Iterator[str]:
    """JSON of a value, formatted as ``json.dumps`` does; repeated names of an object are all kept."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, (Pairs, dict)):
        entries = [*value] if isinstance(value, Pairs) else [*value.items()]
        named = ((f"{json.dumps(_key(name), ensure_ascii=False)}: ", inner) for name, inner in entries)
        yield from _members("{", "}", named, len(entries), indent, depth)
    elif isinstance(value, (list, tuple)):
        yield from _members("[", "]", (("", inner) for inner in value), len(value), indent, depth)
    elif isinstance(value, float) and not math.isfinite(value):
        yield json.dumps(str(value).replace("nan", "NaN").replace("inf", "Infinity"))  # JSON has no such number
    elif value is None or isinstance(value, (bool, int, float, str)):
        yield json.dumps(value, ensure_ascii=False)
    elif isinstance(value, (bytes, bytearray)):
        yield f'"0x{value.hex()}"'
    else:
        yield json.dumps(str(value), ensure_ascii=False)


def _members(
    opening: str, closing: str, members: Iterator[tuple[str, Any]], count: int, indent: int | None, depth: int
) -> Iterator[str]:
    if depth >= DEEPEST:
        raise RecursionError
    yield opening
    line = "" if indent is None else "\n" + " " * (indent * depth)
    for number, (name, inner) in enumerate(members):
        separator = ("," if number else "") if indent is not None else (", " if number else "")
        yield separator + (line and line + " " * (indent or 0)) + name
        yield from _pieces(inner, indent, depth + 1)
    yield (line if count else "") + closing


def _key(name: Any) -> str:
    return name if isinstance(name, str) else "".join(_pieces(name, None, DEEPEST - 4))


class Readers:
    """Readers by a schema's index, and those of registries' schemas, which come with their first values."""

    def __init__(self, by_index: list[Read]) -> None:
        self._by_index = by_index
        self._registered: dict[str, Read] = {}

    def reader(self, header: Any) -> Read:
        """Raises NotReadable for a schema that is not usable."""
        if header["schema"] == MESSAGEPACK:
            return read_messagepack
        if header["schema"] != REGISTERED:
            return self._by_index[int(header["schema"])]
        if header.get("forget"):
            self._registered.clear()
        if "document" in header:
            self._registered[header["key"]] = registered_reader(header["document"])
        read = self._registered.get(header["key"])
        if read is None:
            raise NotReadable("its schema was refused with an earlier value")
        return read


def answer(readers: Readers, header: Any, payload: bytes) -> tuple[dict[str, Any], bytes]:
    try:
        read = readers.reader(header)
        value, note = read(payload, base64.b64decode(header["rest"]), header["framed"])
        text, cut = text_of(value, header["most"], header["indent"])
        # Escapes can produce lone surrogates, which UTF-8 cannot encode.
        return {"error": None, "note": note, "cut": cut}, text.encode(errors="backslashreplace")
    except NotReadable as error:
        return {"error": str(error)[:300]}, b""
    except RecursionError:
        return {"error": f"it is nested deeper than {DEEPEST} levels"}, b""
    except MemoryError:
        return {"error": f"it would take more than {MEMORY_BYTES // MIB} MiB to decode"}, b""


def readers_of(schemas: list[dict[str, Any]]) -> list[Read]:
    """Readers by schema index. Raises NotReadable, whose text names the file."""
    readers: list[Read] = []
    for schema in schemas:
        content = base64.b64decode(schema["content"])
        try:
            readers.append(
                avro_reader(content) if schema["kind"] == AVRO else protobuf_reader(content, schema["message"])
            )
        except NotReadable as error:
            raise NotReadable(f"{schema['path']}: {error}") from None
    return readers


def serve(source: BinaryIO, target: BinaryIO) -> None:
    try:
        readers = Readers(readers_of(receive(source)[0]))
    except NotReadable as error:
        send(target, {"error": str(error)})
        return
    send(target, {"error": None})
    while True:
        try:
            header, payload = receive(source)
        except EOFError:
            return
        send(target, *answer(readers, header, payload))


def main() -> None:
    """Serve with bounds, and without core files, which would hold untrusted bytes."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()

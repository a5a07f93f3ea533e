"""Keys and values that `consume` prints as JSON, by their schemas in a registry.

A value that cannot be decoded is printed as its bytes. The first reasons go to stderr, and the exit code becomes 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from oncelog.base.notation.visible_text import visible_json
from oncelog.base.text import counted
from oncelog.cli.support.terminal import print_line
from oncelog.client.errors import ClientError

if TYPE_CHECKING:
    from oncelog.cli.records.format import Formatter
    from oncelog.client.machine.consumed_records import ConsumedRecord
    from oncelog.client.machine.share.values import ShareRecord
    from oncelog.schemas import Registry

_MOST_SHOWN: Final = 10
_JSON_NAMES: Final = {"key": "key", "value": "payload"}


class _Part(NamedTuple):
    """JSON text and the schema's id, or the error."""

    text: str | None
    schema_id: str | None = None
    error: str | None = None


class RegistryValues:
    def __init__(self, registry: Registry, parts: Set[str]) -> None:
        from oncelog.schemas import Decoder

        self._decoders = {part: Decoder(registry, part) for part in sorted(parts)}
        self._failures = 0

    def formatter(self, plain: Formatter) -> Formatter:
        """A formatter that gives ``plain`` the JSON texts in place of the bytes."""

        def formatted(record: ConsumedRecord | ShareRecord) -> bytes:
            texts = {
                name: part.text.encode(errors="backslashreplace")
                for name, part in self._decoded(record).items()
                if part.text is not None
            }
            return plain(_with_parts(record, texts))

        return formatted

    def json_formatter(self, envelope: Formatter) -> Formatter:
        """A formatter that puts values into the JSON of ``envelope`` as JSON, with the ids of their schemas."""

        def formatted(record: ConsumedRecord | ShareRecord) -> bytes:
            decoded = self._decoded(record)
            bare = {name: None for name, part in decoded.items() if part.text is not None}
            document: dict[str, Any] = json.loads(envelope(_with_parts(record, bare)))
            members = {name: json.dumps(value, ensure_ascii=False) for name, value in document.items()}
            for name, part in decoded.items():
                if part.text is not None:
                    members[_JSON_NAMES[name]] = part.text
                    is_number = str(part.schema_id).isdigit()
                    members[f"{name}_schema_id"] = str(part.schema_id) if is_number else json.dumps(part.schema_id)
                else:
                    members[f"{_JSON_NAMES[name]}_error"] = json.dumps(part.error, ensure_ascii=False)
            text = ",".join(f'"{name}":{value}' for name, value in members.items())
            return visible_json(f"{{{text}}}").encode(errors="backslashreplace") + b"\n"

        return formatted

    def finish(self) -> None:
        """Raises ClientError if a value could not be decoded."""
        if self._failures:
            raise ClientError(f"{counted(self._failures, 'key or value', 'keys or values')} could not be decoded")

    def _decoded(self, record: ConsumedRecord | ShareRecord) -> dict[str, _Part]:
        parts = {}
        for name in self._decoders:
            data = record.key if name == "key" else record.value
            if data is not None:
                parts[name] = self._part(name, data, record)
        return parts

    def _part(self, name: str, data: bytes, record: ConsumedRecord | ShareRecord) -> _Part:
        from oncelog.schemas import NotReadable
        from oncelog.schemas.values.json_output import as_json

        try:
            decoded = self._decoders[name].decode(data, record.headers)
            return _Part(as_json(decoded), decoded.schema_id)
        except NotReadable as error:
            self._failures += 1
            if self._failures <= _MOST_SHOWN:
                place = f"{record.topic}-{record.partition} at offset {record.offset}"
                print_line(f"oncelog: {place}: the {name} cannot be decoded: {error}", err=True, flush=True)
            return _Part(None, error=str(error))


def _with_parts(
    record: ConsumedRecord | ShareRecord, parts: Mapping[str, bytes | None]
) -> ConsumedRecord | ShareRecord:
    return record._replace(key=parts.get("key", record.key), value=parts.get("value", record.value))

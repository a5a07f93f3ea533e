"""Keys or values that name their schemas in a registry, as columns of one reader's schema.

The records of a batch may name several schemas: those of each are decoded at once, and put back into their order. A
record that does not fit has a reason. A registry that does not answer is an error of the whole batch, never a reason:
the same batch may succeed later. A registry that answers, but refuses one id with an error (a user without the right to
read it, a fault of the server), or has an answer that is too large or garbled, would fail the batch for ever: the
records of that id have the reason.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from oncelog.base.bounded_cache import text_bytes
from oncelog.base.units import KIB, MIB
from oncelog.schemas.client.caches import Absences, Cache
from oncelog.schemas.client.errors import NotRegistered, RegistryRefused, UnusableAnswer
from oncelog.schemas.client.registry import ABSENT_S, LATEST, Registry, context_of
from oncelog.schemas.columns.avro import AvroDecoder
from oncelog.schemas.columns.cursor import Array, Indexes, Longs, joined, nulls, taken, with_nulls
from oncelog.schemas.columns.decoded import Decoded, Decoder
from oncelog.schemas.columns.framing import Framing, Named, read_framing
from oncelog.schemas.columns.json_columns import JsonDecoder
from oncelog.schemas.columns.nodes import content_of, offsets_of
from oncelog.schemas.formats.avro.schema import AvroSchema
from oncelog.schemas.formats.parsed import AnySchema, parse
from oncelog.schemas.formats.protobuf.schema import ProtobufSchema
from oncelog.schemas.schema import Schema, SchemaError
from oncelog.schemas.wire_format import VALUE, message_path

_DECODERS_BYTES: Final = 64 * MIB
_DECODER_SHARE: Final = 32
"""Bytes of a decoder for each of its schema's text, roughly."""
_MAX_PATH_BYTES: Final = 200
_UNUSABLE: Final = 200
"""The status of an answer that is no error, and not usable."""
MAX_LACKING: Final = 100
"""Ids that a batch may ask for in vain: bytes that only look framed name thousands."""
UNNAMED: Final = "it names no schema: neither a header nor its first bytes"


class RegisteredColumns:
    """Decodes one part of records to ``type``, by the schema ``reader`` that a subject has in ``context``.

    ``message`` is the full name of a Protobuf message; by default the first one. ``subject`` is the reader's: a
    registry that answers for it has refused another id alone. Raises SchemaError and RegistryError.
    """

    def __init__(
        self,
        registry: Registry,
        reader: Schema,
        part: str = VALUE,
        *,
        message: str | None = None,
        context: str = "",
        subject: str | None = None,
    ) -> None:
        self._registry, self._part, self._context = registry, part, context
        self._reader = self._parsed(reader)
        self._message = message
        self._subject = subject
        self._refusals: Absences[str] = Absences(ABSENT_S, registry.clock)
        self._lacking = 0
        """Ids of this batch that were asked for in vain."""
        self._own = self._decoder_of(self._reader)
        self.type = self._own.type
        self._decoders: Cache[str, Decoder | AnySchema | str] = Cache(_DECODERS_BYTES)
        self._began_s = 0.0

    def decode(self, values: Array, headers: Array | None = None) -> Decoded:
        """The values of a batch; null ones stay null."""
        # Records were written after their schemas were registered, and fetched before now: an absence that is found
        # from now on is true for them, and an older one may not be.
        self._began_s = self._registry.clock()
        self._lacking = 0
        framing = read_framing(values, self._part, headers)
        pieces: list[tuple[Indexes, Decoded]] = []
        # The ids of most records first: random bytes seldom name an id twice.
        for named, rows in sorted(framing.groups, key=lambda group: -len(group[1])):
            pieces += self._decode_group(values, named, rows, framing)
        if len(framing.unnamed):
            pieces.append((framing.unnamed, self._refused(len(framing.unnamed), UNNAMED)))
        return _in_order(pieces, len(values), self.type)

    def _decode_group(
        self, values: Array, named: Named, rows: Indexes, framing: Framing
    ) -> list[tuple[Indexes, Decoded]]:
        decoder = self._decoder(named.schema_id)
        if isinstance(decoder, str):
            return [(rows, self._refused(len(rows), f"schema {named.schema_id}: {decoder}"))]
        whole = len(rows) == len(values)
        payloads = values if whole else taken(values, rows)
        starts = framing.starts[rows]
        if not isinstance(decoder, ProtobufSchema):
            assert isinstance(decoder, AvroDecoder | JsonDecoder)
            return [(rows, self._explained(decoder.decode(payloads, starts), named))]
        return self._decode_messages(payloads, starts, rows, decoder, named)

    def _decode_messages(
        self, payloads: Array, starts: Longs, rows: Indexes, schema: ProtobufSchema, named: Named
    ) -> list[tuple[Indexes, Decoded]]:
        pieces: list[tuple[Indexes, Decoded]] = []
        for path, index in _by_path(payloads, starts, named.rest):
            reason = self._other_message(schema, path)
            if reason is not None:
                decoded = self._refused(len(index), f"schema {named.schema_id}: {reason}")
            else:
                part = payloads if len(index) == len(rows) else taken(payloads, index)
                decoded = self._explained(self._own.decode(part, starts[index]), named)
            pieces.append((rows[index], decoded))
        return pieces

    def _other_message(self, schema: ProtobufSchema, path: tuple[int, ...] | None) -> str | None:
        """The reason why a message is not the reader's."""
        if path is None:
            return "the bytes after the id name no message"
        try:
            name = schema.message_name(path)
        except SchemaError as error:
            return str(error)
        own = self._message_name()
        return None if name == own else f"message {name} is not {own}"

    def _message_name(self) -> str:
        assert isinstance(self._reader, ProtobufSchema)
        return self._message or self._reader.message_name((0,))

    def _explained(self, decoded: Decoded, named: Named) -> Decoded:
        if decoded.reasons is None:
            return decoded
        from pyarrow import compute

        prefix: Any = pa.scalar(f"schema {named.schema_id}: ")
        join: Any = compute.binary_join_element_wise
        return Decoded(decoded.values, join(prefix, decoded.reasons, ""))

    def _refused(self, count: int, reason: str) -> Decoded:
        return Decoded(nulls(count, self.type), pa.array([reason] * count, pa.string()))

    # Schemas

    def _decoder(self, schema_id: str) -> Decoder | AnySchema | str:
        """Reads the values of a schema: for Protobuf the schema itself; a reason if it cannot."""
        decoder = self._decoders.get(schema_id)
        if decoder is None:
            if self._lacking >= MAX_LACKING:
                return f"it was not asked for, since the registry lacks {MAX_LACKING} others that are named beside it"
            try:
                decoder, text_size = self._asked(schema_id)
            except NotRegistered as error:  # the client remembers that
                self._lacking += 1
                return "the registry does not have it" if error.status == 404 else str(error)
            self._decoders.put(schema_id, decoder, _DECODER_SHARE * text_size + 8 * KIB)
        return decoder

    def _asked(self, schema_id: str) -> tuple[Decoder | AnySchema | str, int]:
        """A decoder, and the size of its schema. Raises NotRegistered for an absent id, and for one whose schemas the
        registry refuses or garbles while it answers for the reader's subject; RegistryError."""
        self._refusals.check(schema_id)
        for is_last in (False, True):
            try:
                schema = self._registry.schema(schema_id, self._context, asked_since_s=self._began_s)
                return self._compiled(schema), text_bytes(schema.text)
            except NotRegistered:
                raise
            except (RegistryRefused, UnusableAnswer) as error:
                if self._subject is None:
                    raise
                if is_last:
                    status, code = (error.status, error.code) if isinstance(error, RegistryRefused) else (_UNUSABLE, 0)
                    refusal = NotRegistered(str(error), status, code)
                    self._refusals.put(schema_id, refusal)
                    raise refusal from None
                # Raises the registry's error if it refuses everything. Then once more: it may have recovered.
                self._registry.version(self._subject)
        raise AssertionError

    def _compiled(self, schema: Schema) -> Decoder | AnySchema | str:
        """Raises RegistryError, if not NotRegistered, for a reference."""
        if schema.type is not self._reader.type:
            return f"{schema.type.value} cannot be read as {self._reader.type.value}"
        try:
            parsed = self._parsed(schema)
            if isinstance(parsed, ProtobufSchema):
                return parsed
            if isinstance(parsed, AvroSchema):
                assert isinstance(self._reader, AvroSchema)
                return AvroDecoder(parsed.fastavro, self._reader.fastavro)
        except (SchemaError, NotRegistered) as error:
            return str(error)
        return self._own

    def _parsed(self, schema: Schema) -> AnySchema:
        return parse(schema, self._registry.resolver(self._context))

    def _decoder_of(self, reader: AnySchema) -> Decoder:
        if isinstance(reader, AvroSchema):
            return AvroDecoder(reader.fastavro)
        if isinstance(reader, ProtobufSchema):
            from oncelog.schemas.columns.protobuf import ProtobufDecoder

            try:
                return ProtobufDecoder(reader.pool.FindMessageTypeByName(self._message_name()))
            except KeyError:
                raise SchemaError(f"the schema has no message {self._message_name()!r}") from None
        return JsonDecoder(reader)


def reader_schema(registry: Registry, subject: str, version: int | str = LATEST) -> tuple[Schema, str, int]:
    """A subject's schema, its context and its version. Raises RegistryError."""
    registered = registry.version(subject, version)
    return registered.schema, context_of(subject), registered.version


def _by_path(payloads: Array, starts: Longs, rest: bytes | None) -> list[tuple[tuple[int, ...] | None, Indexes]]:
    """Messages by their path within the schema's file; ``starts`` advances over paths before a payload."""
    every = np.arange(len(payloads))
    if rest is not None:  # in the header; without a path it is the first message
        path = message_path(rest) if rest else ((0,), 0)
        return [(None if path is None else path[0], every)]
    paths: dict[tuple[int, ...] | None, list[int]] = {}
    first = _first_bytes(payloads, starts)
    is_first_message = first == 0
    groups: list[tuple[tuple[int, ...] | None, Indexes]] = []
    if is_first_message.any():
        groups.append(((0,), np.flatnonzero(is_first_message)))
        starts[is_first_message] += 1
    for row in np.flatnonzero(~is_first_message).tolist():
        start = int(starts[row])
        path = message_path(payloads[row].as_py()[start : start + _MAX_PATH_BYTES])
        paths.setdefault(None if path is None else path[0], []).append(row)
        starts[row] += 0 if path is None else path[1]
    return [*groups, *((path, np.array(rows)) for path, rows in paths.items())]


def _first_bytes(payloads: Array, starts: Longs) -> np.ndarray[Any, Any]:
    """The first byte of each payload; 255 for an empty one."""
    offsets = offsets_of(payloads).astype(np.int64)
    at = offsets[:-1] + starts
    content = np.append(content_of(payloads), np.uint8(255))
    return np.where(at < offsets[1:], content.take(at, mode="clip"), 255)


def _in_order(pieces: list[tuple[Indexes, Decoded]], count: int, kind: pa.DataType) -> Decoded:
    """The pieces, each at its rows; null elsewhere."""
    if len(pieces) == 1 and len(pieces[0][0]) == count:
        return pieces[0][1]
    return Decoded(
        _placed([(rows, decoded.values) for rows, decoded in pieces], count, kind),
        _placed(
            [(rows, decoded.reasons) for rows, decoded in pieces if decoded.reasons is not None], count, pa.string()
        )
        if any(decoded.reasons is not None for _, decoded in pieces)
        else None,
    )


def _placed(pieces: list[tuple[Indexes, Array]], count: int, kind: pa.DataType) -> Array:
    if not pieces:
        return nulls(count, kind)
    return with_nulls(joined([array for _, array in pieces], kind), np.concatenate([rows for rows, _ in pieces]), count)

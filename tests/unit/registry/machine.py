"""A registry's store with its programs, run at once: what is appended is encoded, decoded and applied."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from oncelog.registry import changes
from oncelog.registry.errors import RegistryError
from oncelog.registry.registration import Request, look_up, register
from oncelog.registry.steps import Append, Compare, Parse, Program, Step
from oncelog.registry.store import Store
from oncelog.registry.subjects import within
from oncelog.registry.topic_records import (
    Document,
    TopicRecord,
    Version,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from oncelog.schemas.schema import Reference, Schema, SchemaError, SchemaType
from tests.unit.registry.fake_formats import FakeFormats

T = TypeVar("T")
Line = tuple[bytes, bytes | None]


class Machine:
    def __init__(self, lines: list[Line] | None = None) -> None:
        self.formats = FakeFormats()
        self.store = Store()
        self.lines: list[Line] = []
        for key, value in lines or ():
            self.append_line(key, value)

    def run(self, program: Program[T]) -> T:
        answer: object = None
        failure: RegistryError | None = None
        while True:
            try:
                step = program.send(answer) if failure is None else program.throw(failure)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            answer = failure = None
            try:
                answer = self._carry_out(step)
            except SchemaError as error:
                failure = RegistryError(42201, str(error))

    def _carry_out(self, step: Step) -> object:
        if isinstance(step, Parse):
            return self.formats.parse(step.schema, lambda reference: self._referenced(step.subject, reference))
        if isinstance(step, Compare):
            return self.formats.incompatibilities(step.schema, (), step.level)
        if isinstance(step, Append):
            for record in step.records:
                self.append(record)
        return None

    def _referenced(self, subject: str, reference: Reference) -> Schema:
        version = self.store.version(within(subject, reference.subject), reference.version, deleted=True)
        if version is None:
            raise SchemaError("No schema reference found")
        return version.schema

    def append(self, record: TopicRecord) -> bool:
        key, value = record
        return self.append_line(encode_key(key), None if value is None else encode_value(key, value))

    def append_line(self, key: bytes, value: bytes | None) -> bool:
        self.lines.append((key, value))
        decoded = decode_key(key)
        return self.store.apply(TopicRecord(decoded, None if value is None else decode_value(decoded, value)))

    def compacted(self) -> Machine:
        """The machine that another instance has after the topic was compacted, tombstones included."""
        latest = dict(self.lines)
        kept = [(key, value) for key, value in self.lines if value is not None and latest[key] is value]
        return Machine(kept)

    def register(self, subject: str, text: str, *references: Reference, **fields: object) -> Version:
        request = Request(subject, Schema(text, SchemaType.AVRO, references))
        return self.run(register(self.store, replace(request, **fields)))  # type: ignore[arg-type]

    def look_up(self, subject: str, text: str, *, deleted: bool = False) -> Version | None:
        return self.run(look_up(self.store, Request(subject, Schema(text)), deleted=deleted))

    def delete(self, subject: str, *, permanent: bool = False) -> list[int]:
        return self.run(changes.delete_subject(self.store, subject, permanent=permanent))

    def delete_version(self, subject: str, number: int, *, permanent: bool = False) -> int:
        return self.run(changes.delete_version(self.store, subject, number, permanent=permanent))

    def set_config(self, subject: str | None, **config: object) -> Document:
        return self.run(changes.set_config(self.store, subject, config))

    def set_mode(self, subject: str | None, mode: str | None, *, force: bool = False) -> None:
        self.run(changes.set_mode(self.store, subject, mode, force=force))

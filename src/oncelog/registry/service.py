"""Runs the programs of requests: one change at a time, and parsing and comparing in worker threads.

A change whose pen is lost to another instance runs again from its beginning, after a pause of random length.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, TypeVar

from oncelog.base.bounded_cache import Memo
from oncelog.base.units import MIB
from oncelog.client.errors import ClientError
from oncelog.registry import errors
from oncelog.registry.formats import Formats, ParsedSchema
from oncelog.registry.steps import Append, Compare, Current, Parse, Program, Step
from oncelog.registry.store import Store
from oncelog.registry.subjects import context_of, within
from oncelog.registry.topic import PenLost, SchemasTopic, in_batches
from oncelog.registry.topic_records import Version
from oncelog.schemas.schema import Reference, Schema, SchemaError, SchemaType

T = TypeVar("T")
PARSERS: Final = 2
MAX_WAITING: Final = 64
"""Schemas that are parsed or wait for it; further requests are refused."""
MAX_ATTEMPTS: Final = 20
MAX_HELD_BYTES: Final = 1024 * MIB
MAX_REFERENCES: Final = 500
MAX_REFERENCED_BYTES: Final = 8 * MIB
_CACHE_BYTES: Final = 256 * MIB
_PARSED_SHARE: Final = 16
"""An upper estimate of the bytes that a parsed schema takes for each of its text."""

_ParsedKey = tuple[str, SchemaType, str, tuple[Reference, ...]]


class Registry:
    def __init__(self, topic: SchemasTopic, formats: Formats, cluster_id: str, *, read_only: bool = False) -> None:
        self.store: Store = topic.store
        self._topic = topic
        self.cluster_id = cluster_id
        self._formats = formats
        self._read_only = read_only
        self._changing = asyncio.Lock()
        self._parsers = ThreadPoolExecutor(PARSERS, "oncelog-registry")
        self._waiting = 0
        self._parsed: Memo[_ParsedKey, ParsedSchema] = Memo(_CACHE_BYTES)
        self._generation = 0

    @property
    def is_reading(self) -> bool:
        """True while the registry follows its topic."""
        return self._topic.is_reading

    def close(self) -> None:
        self._parsers.shutdown(wait=False, cancel_futures=True)

    async def read(self, program: Program[T]) -> T:
        """Run a program that changes nothing. Raises RegistryError."""
        return await self._run(program)

    async def change(self, begin: Callable[[], Program[T]]) -> T:
        """Run a program that may change something. Raises RegistryError."""
        for attempt in range(MAX_ATTEMPTS):
            try:
                return await self._run(begin())
            except PenLost:
                await asyncio.sleep(random.uniform(0.0, 0.01) * (attempt + 1))
        raise errors.RegistryError(
            errors.Code.TIMED_OUT, f"other instances wrote during each of {MAX_ATTEMPTS} attempts; try again"
        )

    async def formatted(self, version: Version, form: str) -> Version:
        """The version with its text in another form. Raises RegistryError."""
        parsed = await self._parse(version.subject, version.schema)
        try:
            text = await self._in_thread(self._formats.formatted, parsed, form)
        except SchemaError as error:
            raise errors.invalid_schema(str(error)) from None
        return replace(version, schema=replace(version.schema, text=text))

    async def _run(self, program: Program[T]) -> T:
        holds = False
        try:
            answer: Any = None
            failure: BaseException | None = None
            while True:
                try:
                    step = program.send(answer) if failure is None else program.throw(failure)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]  # the program's result
                answer = failure = None
                if isinstance(step, Current) and not holds:
                    await self._changing.acquire()
                    holds = True
                try:
                    answer = await self._carry_out(step)
                except errors.RegistryError as error:
                    failure = error
        finally:
            program.close()
            if holds:
                self._changing.release()

    async def _carry_out(self, step: Step) -> object:
        if isinstance(step, Parse):
            return await self._parse(step.subject, step.schema)
        if isinstance(step, Compare):
            return await self._compare(step)
        if self._read_only:
            raise errors.not_permitted("this registry is read-only; send changes to one that was started without it")
        try:
            if isinstance(step, Current):
                await self._topic.hold_pen()
            else:
                await self._append(step)
        except ClientError as error:
            raise errors.RegistryError(errors.Code.STORE_FAILED, f"the topic cannot be written: {error}") from None
        return None

    async def _append(self, step: Append) -> None:
        batches = list(in_batches(step.records))
        if self.store.held_bytes > MAX_HELD_BYTES and any(record.value is not None for record in step.records):
            raise errors.too_large(f"the registry holds {MAX_HELD_BYTES // MIB} MiB of schemas; delete some for good")
        for batch in batches:
            await self._topic.append(batch)

    async def _compare(self, step: Compare) -> list[str]:
        earlier = []
        for version in step.versions:
            try:
                earlier.append((version.version, await self._parse(version.subject, version.schema)))
            except errors.RegistryError as error:
                return [f"version {version.version} of {version.subject} cannot be read any more: {error.message}"]
        try:
            return await self._in_thread(self._formats.incompatibilities, step.schema, earlier, step.level)
        except SchemaError as error:
            raise errors.invalid_schema(str(error)) from None

    async def _parse(self, subject: str, schema: Schema) -> ParsedSchema:
        if self._generation != self.store.generation:
            self._generation = self.store.generation
            self._parsed.clear()
        key = (context_of(subject), schema.type, schema.text, schema.references)
        parsed = self._parsed.get(key)
        if parsed is not None:
            return parsed
        try:
            resolved = self._resolve(subject, schema)
            parsed = await self._in_thread(self._formats.parse, _qualified(subject, schema), resolved.__getitem__)
        except SchemaError as error:
            raise errors.invalid_schema(f"Invalid schema of type {schema.type.value}, details: {error}") from None
        self._parsed.remember(key, parsed, _PARSED_SHARE * (100 + len(schema.text)))
        return parsed

    def _resolve(self, subject: str, schema: Schema) -> dict[Reference, Schema]:
        """Everything that a schema refers to, directly and through others, as the store has it now."""
        resolved: dict[Reference, Schema] = {}
        waiting = list(_qualified(subject, schema).references)
        size_bytes = 0
        while waiting:
            reference = waiting.pop()
            if reference in resolved:
                continue
            version = self.store.version(reference.subject, reference.version, deleted=True)
            if version is None:
                raise SchemaError(
                    f'No schema reference found for subject "{reference.subject}" and version {reference.version}'
                )
            size_bytes += len(version.schema.text)
            if len(resolved) >= MAX_REFERENCES or size_bytes > MAX_REFERENCED_BYTES:
                raise SchemaError(
                    f"the schema refers to more than {MAX_REFERENCES} others or {MAX_REFERENCED_BYTES // MIB} MiB"
                )
            resolved[reference] = _qualified(version.subject, version.schema)
            waiting += resolved[reference].references
        return resolved

    async def _in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        if self._waiting >= MAX_WAITING:
            raise errors.RegistryError(503, f"{MAX_WAITING} schemas wait to be parsed; try again in a moment")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._parsers, work, *arguments)
        finally:
            self._waiting -= 1


def _qualified(subject: str, schema: Schema) -> Schema:
    """The schema with the contexts of its references: a reference without one means the context of its subject."""
    references = tuple(
        Reference(reference.name, within(subject, reference.subject), reference.version)
        for reference in schema.references
    )
    return Schema(schema.text, schema.type, references, schema.metadata, schema.rule_set)

"""Copies the schemas of a source's registry into the registry of a mirror's target, as `oncelog mirror --schemas` does.

1. Ids, GUIDs and versions stay. Contexts and subjects follow the names of the topics (``Naming``).
2. Nothing at the target is overwritten: a version or an id that has another schema there is a conflict, as is a schema
   that refers to one. Everything else is copied.
3. Softly deleted versions are copied as such. A version deleted for good stays: copied records may need it. What was
   softly deleted at the target stays so.
4. Modes are not copied, as they say who may write at the source. A context that the copy creates is in mode IMPORT, so
   that the target gives none of the source's ids.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from oncelog.base.ids import TopicName
from oncelog.client.aio import AsyncClient
from oncelog.client.errors import ClientError
from oncelog.registry.errors import RegistryError
from oncelog.registry.store import LAST_IDS, Place, Store, referred_places
from oncelog.registry.subjects import DEFAULT_CONTEXT, GLOBAL_CONTEXT, Subject, context_of, parse_subject
from oncelog.registry.topic import PenLost, SchemasTopic, in_batches
from oncelog.registry.topic_records import TOPIC, Key, KeyType, TopicRecord, Version
from oncelog.registry.transfer import exported
from oncelog.schemas.schema import Reference

MAX_ATTEMPTS: Final = 20
_PATIENCE_S: Final = 10.0


class Conflict(NamedTuple):
    """A version that is not copied, by its name at the target."""

    subject: str
    version: int
    reason: str


class SchemasNotCopied(ClientError):
    """The registry of the source or the target was out of reach, or busy; a repetition may succeed."""

    retriable = True


class Naming:
    """Names of the source's schemas at the target. With ``alias`` a, subject `s` is `a.s` in the context `.a`: the
    subject of the topic that the mirror names `a.TOPIC`, under ids that may differ from those of other sources. Without
    it nothing changes."""

    def __init__(self, alias: str = "", avoided: Iterable[str] = ()) -> None:
        self._alias = alias
        self._avoided = frozenset(avoided) - {""}
        """Aliases of the source and the target: contexts made by a mirror for them are not copied back."""

    def is_copied(self, context: str) -> bool:
        return context != GLOBAL_CONTEXT and (not self._alias or self._avoided.isdisjoint(context.split(".")))

    def context(self, context: str) -> str:
        if not self._alias:
            return context
        return f".{self._alias}" if context == DEFAULT_CONTEXT else f".{self._alias}{context}"

    def subject(self, text: str) -> str:
        subject = parse_subject(text)
        if not self._alias:
            return text
        name = f"{self._alias}.{subject.name}" if subject.name else ""
        return Subject(self.context(subject.context), name).qualified

    def version(self, version: Version) -> Version:
        if not self._alias:
            return version
        references = tuple(replace(used, subject=self._referred(used)) for used in version.schema.references)
        # The GUID stays, although it is computed from the references: records name schemas by it.
        return replace(
            version, subject=self.subject(version.subject), schema=replace(version.schema, references=references)
        )

    def _referred(self, reference: Reference) -> str:
        subject = parse_subject(reference.subject)
        is_relative = subject.context == DEFAULT_CONTEXT and not reference.subject.startswith(":.")
        # Relative to the context of its schema.
        return f"{self._alias}.{subject.name}" if is_relative else self.subject(reference.subject)


def copies(source: Store, naming: Naming, *, with_configs: bool) -> Iterator[TopicRecord]:
    """Records that the target should hold: references come before the schemas that refer to them."""
    if source.subjects and naming.context(DEFAULT_CONTEXT) != DEFAULT_CONTEXT:
        yield _context(naming.context(DEFAULT_CONTEXT))
    for key, value in exported(source):
        if key == LAST_IDS and isinstance(value, dict):
            last_ids = {
                naming.context(context): last for context, last in value["lastIds"].items() if naming.is_copied(context)
            }
            yield TopicRecord(LAST_IDS, {**value, "lastIds": last_ids})
        elif key.type is KeyType.CONTEXT:
            if naming.is_copied(key.subject or ""):
                yield _context(naming.context(key.subject or ""))
        elif key.type is KeyType.MODE or not naming.is_copied(context_of(key.subject or "")):
            continue
        elif isinstance(value, Version):
            version = naming.version(value)
            yield TopicRecord(Key(KeyType.SCHEMA, version.subject, version.version), version)
        elif key.type is KeyType.CONFIG and with_configs and isinstance(value, dict):
            subject = naming.subject(key.subject or "")
            if subject:  # the level for all subjects is the target's own
                yield TopicRecord(Key(KeyType.CONFIG, subject), {**value, "subject": subject})


def missing(target: Store, records: Iterable[TopicRecord]) -> tuple[list[TopicRecord], list[Conflict]]:
    """The records that the target lacks, and the conflicts. The last ids come first: no later writer gives an id that
    is still to be copied."""
    new: list[TopicRecord] = []
    conflicts: list[Conflict] = []
    left_out: set[Place] = set()
    texts: dict[tuple[str, int], str] = {}
    for record in records:
        key, value = record
        if isinstance(value, Version):
            reason = _conflict(target, value, texts, left_out)
            if reason is not None:
                left_out.add((value.subject, value.version))
                conflicts.append(Conflict(value.subject, value.version, reason))
                continue
            texts[context_of(value.subject), value.id] = value.schema.text
            held = target.version(value.subject, value.version, deleted=True)
            if held is None or (value.deleted and not held.deleted):
                new.append(record)
        elif key == LAST_IDS and value is not None:
            marker = target.marker(value)
            new[:0] = [marker] if marker != target.marker() else []
        elif key.type is KeyType.CONTEXT and key.subject not in target.contexts:
            new += _new_context(target, record)
        elif key.type is KeyType.CONFIG and target.configs.get(key.subject) != value:
            new.append(record)
    return new, conflicts


class SchemaCopy:
    """Copies schemas between the clusters of two clients, as often as it is called."""

    def __init__(self, source: AsyncClient, target: AsyncClient, naming: Naming, *, with_configs: bool = True) -> None:
        self._source_client = source
        self._naming = naming
        self._with_configs = with_configs
        self._source = SchemasTopic(source, Store(), TOPIC, patience_s=_PATIENCE_S)
        self._target = SchemasTopic(target, Store(), TOPIC, patience_s=_PATIENCE_S)
        self._compared: tuple[int, int] | None = None
        """The positions in both topics up to which nothing is left to copy but conflicts."""
        self._conflicts: list[Conflict] = []

    async def copy(self) -> list[Conflict]:
        """Copy what the source has registered until now. Returns everything that is not copied. Raises ClientError."""
        try:
            if not await self._is_up_to_date():
                await self._copy()
        except RegistryError as error:
            raise SchemasNotCopied(error.message) from None
        return self._conflicts

    async def close(self) -> None:
        await self._source.close()
        await self._target.close()

    async def _is_up_to_date(self) -> bool:
        if not self._source.is_reading:
            if TopicName(TOPIC) not in await self._source_client.metadata(None):
                return True
            await self._source.start(create=False)
        if not self._target.is_reading:
            await self._target.start()
        await self._source.catch_up()
        await self._target.catch_up()
        return self._compared == (self._source.position, self._target.position)

    async def _copy(self) -> None:
        for attempt in range(MAX_ATTEMPTS):
            try:
                position = self._source.position
                records = list(copies(self._source.store, self._naming, with_configs=self._with_configs))
                new, _ = missing(self._target.store, records)
                if new:
                    await self._target.hold_pen()
                    new, _ = missing(self._target.store, records)
                    for batch in in_batches(new):
                        await self._target.append(batch)
                _, self._conflicts = missing(self._target.store, records)
                self._compared = position, self._target.position
                return
            except PenLost:
                await asyncio.sleep(random.uniform(0.0, 0.01) * (attempt + 1))
        raise SchemasNotCopied(f"other registries wrote to {TOPIC} during each of {MAX_ATTEMPTS} attempts")


def _context(context: str) -> TopicRecord:
    return TopicRecord(Key(KeyType.CONTEXT, context), {"tenant": "default", "context": context})


def _new_context(target: Store, record: TopicRecord) -> Iterator[TopicRecord]:
    yield record
    scope = Subject(record.key.subject or "", "").qualified
    if target.mode(scope) is None:
        yield TopicRecord(Key(KeyType.MODE, scope), {"subject": scope, "mode": "IMPORT"})


def _conflict(
    target: Store, version: Version, texts: Mapping[tuple[str, int], str], left_out: set[Place]
) -> str | None:
    held = target.version(version.subject, version.version, deleted=True)
    if held is not None and (held.guid, held.id) != (version.guid, version.id):
        return f"the target has another schema there, of id {held.id}"
    context = context_of(version.subject)
    holder = target.by_id(version.id, context)
    text = texts.get((context, version.id)) if holder is None else holder.schema.text
    if text is not None and text != version.schema.text:
        named = "" if holder is None else f", version {holder.version} of {holder.subject}"
        return f"the id {version.id} belongs to another schema at the target{named}"
    for target_place in referred_places(version):
        if target_place in left_out:
            return f"it refers to version {target_place[1]} of {target_place[0]}, which is not copied"
    return None

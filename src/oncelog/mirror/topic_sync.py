"""Keeps the target's topics in step with the source's: created, grown, configured and, on request, deleted.

Only the owner of a topic's partition 0 changes it at the target; other instances wait. Changes are repeated until they
take effect: an instance that dies midway leaves nothing to repair.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from oncelog.admin.configs import ConfigRow, ResourceType, alter_configs, configs_by_name
from oncelog.admin.topics import NewTopic, add_partitions, create_topic, delete_topics, ensure_topic
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.producer import AsyncProducer
from oncelog.client.errors import BrokerRefused, UnsupportedRequest
from oncelog.client.machine.metadata import TopicInfo
from oncelog.client.machine.requests import LATEST
from oncelog.client.machine.retry import Remedy, remedy
from oncelog.client.programs.log_offsets import offsets_at
from oncelog.mirror.acl_sync import sync_acls
from oncelog.mirror.errors import at_target, topic_refusal_row
from oncelog.mirror.framing import FrameLimits
from oncelog.mirror.positions_topic import slot_of
from oncelog.mirror.progress import RefusalRow
from oncelog.mirror.provenance import PROVENANCE_TOPIC, Copy, read_copies, tombstone
from oncelog.mirror.settings import MirrorSettings
from oncelog.mirror.stored_positions import read_to_end
from oncelog.mirror.topic_plan import PlannedTopic, TargetChange, TopicPlan, change_of, plan_topics, wanted_configs
from oncelog.wire.messages.produce import ProduceRequest

LOG: Final = logging.getLogger("oncelog.mirror")
DEFAULT_MAX_MESSAGE_BYTES: Final = 1_048_588
_FIRST_PRODUCE_WITH_ZSTD: Final = 7
_ACLS: Final = "*"
"""The key of a refusal of access control lists."""
_ABOUT_CONFIGS: Final = (ErrorCode.INVALID_CONFIG, ErrorCode.POLICY_VIOLATION)
_PROVENANCE: Final = TopicPartition(PROVENANCE_TOPIC, 0)


class Provenance:
    """The copies recorded in a cluster, read incrementally."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._records: dict[bytes | None, bytes | None] = {}
        self._next = 0
        self.copies: dict[tuple[str, str], Copy] = {}

    async def refresh(self, *, exists: bool) -> None:
        """Read new records. A topic that does not exist has no copies."""
        if not exists:
            self._records, self._next = {}, 0
        elif (end := (await offsets_at(self._client, {_PROVENANCE: LATEST}))[_PROVENANCE]) != self._next:
            starts = {_PROVENANCE: self._next} if 0 < self._next < end else None
            async for record in read_to_end(self._client, [_PROVENANCE], starts):
                self._records[record.key] = record.value
            self._next = end
        self.copies = read_copies(self._records.items())


class TopicSync:
    def __init__(self, settings: MirrorSettings, source: AsyncClient, target: AsyncClient) -> None:
        self._settings = settings
        self._source = source
        self._target = target
        self._at_source = Provenance(source)
        self._at_target = Provenance(target)
        self._source_topics: dict[TopicName, TopicInfo] = {}
        self._target_topics: dict[TopicName, TopicInfo] = {}
        self._limits: dict[str, FrameLimits] = {}
        self._configs: dict[str, dict[str, ConfigRow]] = {}
        self.refusals: dict[str, RefusalRow] = {}
        """Refusals of the target by source topic."""
        self.plan = TopicPlan()
        self.source_cluster = ""

    def is_ready(self, topic: PlannedTopic, partition: int) -> bool:
        info = self._target_topics.get(topic.target)
        return info is not None and partition in info.partitions

    def target_id(self, target: TopicName) -> str:
        info = self._target_topics.get(target)
        return "" if info is None or info.topic_id == NO_TOPIC_ID else bytes(info.topic_id).hex()

    def config_of(self, target: str) -> Mapping[str, ConfigRow] | None:
        """The configuration at the last refresh."""
        return self._configs.get(target)

    def is_gone(self, topic: TopicName) -> bool:
        return topic not in self._source_topics

    def limits(self, target: str) -> FrameLimits:
        return self._limits.get(target) or FrameLimits(
            DEFAULT_MAX_MESSAGE_BYTES, read_committed=self._settings.read_committed
        )

    async def refresh(self, owned: tuple[int, ...], slots: int) -> TopicPlan:
        """Read both clusters, and change the target as these slots are responsible for. Returns the plan."""
        topics = self._source_topics = await self._source.metadata(None)
        self._target_topics = await self._target.metadata(None)
        self.source_cluster = self._source.view.cluster_id or self._settings.source.alias
        target_cluster = self._target.view.cluster_id or self._settings.target.alias
        await self._at_source.refresh(exists=PROVENANCE_TOPIC in topics)
        plan = plan_topics(self._settings, topics, self._at_source.copies, self.source_cluster, target_cluster)
        for name in sorted(set(plan.cycles) - set(self.plan.cycles)):
            LOG.info("topic %s of %s came from the target and is not copied back", name, self._settings.source.alias)
        self.plan = plan
        if not self._settings.delete_topics:
            for name in set(self.refusals).difference(plan.topics, plan.unnamed, [_ACLS]):
                del self.refusals[name]
        for name, text in plan.unnamed.items():
            if slot_of(TopicPartition(TopicName(name), 0), slots) in owned:
                self._refuse(name, "", ErrorCode.INVALID_TOPIC_EXCEPTION, text)
        mine = [topic for topic in plan.topics.values() if slot_of(TopicPartition(topic.name, 0), slots) in owned]
        await self._at_target.refresh(exists=PROVENANCE_TOPIC in self._target_topics)
        await self._apply_plan(mine)
        if self._settings.sync_acls and 0 in owned:
            await self._sync_acls()
        if self._settings.delete_topics:
            await self._delete_gone(topics, owned, slots)
        return plan

    async def _sync_acls(self) -> None:
        alias = self._settings.source.alias
        try:
            made = await sync_acls(self._settings, self._source, self._target, self.plan.topics)
        except (BrokerRefused, UnsupportedRequest) as error:
            self._refuse(_ACLS, _ACLS, _code_of(error), str(error), stands=False)
            return
        self.refusals.pop(_ACLS, None)
        if made:
            LOG.info("%d access control entries of %s made at the target", made, alias)

    async def _apply_plan(self, mine: list[PlannedTopic]) -> None:
        sources = (
            await topic_configs(self._source, [topic.name for topic in mine]) if self._settings.sync_configs else {}
        )
        new_copies: list[Copy] = []
        made = False
        for topic in mine:
            configs = wanted_configs(sources.get(topic.name, {}), DEFAULT_MAX_MESSAGE_BYTES)
            before = self._at_target.copies.get((topic.target, self._settings.source.alias))
            keys = tuple(sorted(configs)) if topic.name in sources or before is None else before.configs
            copy = Copy(topic.target, self._settings.source.alias, topic.name, topic.path, keys)
            if before != copy:
                new_copies.append(copy)
            try:
                made |= await self._make(topic, configs)
            except (BrokerRefused, UnsupportedRequest) as error:
                if remedy(_code_of(error)) is not Remedy.FAIL:
                    raise
                self._refuse(topic.name, topic.target, _code_of(error), str(error))
        if new_copies:
            await self._write_provenance([copy.record() for copy in new_copies])
        if made:
            self._target_topics = await self._target.metadata(None)
        await self._configure(mine, sources)

    async def _make(self, topic: PlannedTopic, configs: Mapping[str, str]) -> bool:
        """Create or grow one topic. True if something changed."""
        info = self._target_topics.get(topic.target)
        if info is None:
            try:
                await self._create(topic, configs)
            except BrokerRefused as error:
                if error.code not in _ABOUT_CONFIGS or not configs:
                    raise
                # One invalid key must not keep the topic from being created: it is reported by ``_configure``.
                valid = {key: value for key, value in configs.items() if await self._is_valid(topic, {key: value})}
                await self._create(topic, valid)
        elif len(info.partitions) < topic.partitions:
            with at_target():
                await add_partitions(self._target, topic.target, topic.partitions)
        else:
            self._accept(topic.name, stands=True)
            return False
        self._accept(topic.name, stands=True)
        return True

    async def _create(self, topic: PlannedTopic, configs: Mapping[str, str]) -> None:
        with at_target():
            await ensure_topic(self._target, self._new(topic, configs))

    async def _is_valid(self, topic: PlannedTopic, configs: Mapping[str, str]) -> bool:
        try:
            with at_target():
                await create_topic(self._target, self._new(topic, configs), validate_only=True)
        except BrokerRefused as error:
            if error.code not in (*_ABOUT_CONFIGS, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise
            return error.code not in _ABOUT_CONFIGS
        return True

    def _new(self, topic: PlannedTopic, configs: Mapping[str, str]) -> NewTopic:
        return NewTopic(topic.target, topic.partitions, self._settings.replication_factor, configs)

    async def _configure(self, mine: list[PlannedTopic], sources: Mapping[str, Mapping[str, ConfigRow]]) -> None:
        """Set the limits of all topics, and the keys of topics that this instance is responsible for."""
        link = await self._target.link()
        zstd = link.versions.supports(ProduceRequest, _FIRST_PRODUCE_WITH_ZSTD)
        targets = await topic_configs(
            self._target, [t.target for t in self.plan.topics.values() if t.target in self._target_topics]
        )
        for topic in mine:
            present = targets.get(topic.target)
            if present is None or topic.name not in sources:
                continue
            configs = wanted_configs(sources[topic.name], DEFAULT_MAX_MESSAGE_BYTES)
            before = self._at_target.copies.get((topic.target, self._settings.source.alias))
            change = change_of(configs, present, () if before is None else before.configs)
            if change.change or change.delete:
                await self._alter(topic, change)
            else:
                self._accept(topic.name, stands=False)
        for name, present in targets.items():
            value = present.get("max.message.bytes")
            largest = int(value.value) if value is not None and value.value else DEFAULT_MAX_MESSAGE_BYTES
            self._limits[name] = FrameLimits(largest, zstd, self._settings.read_committed)
        self._configs = targets

    async def _alter(self, topic: PlannedTopic, change: TargetChange) -> None:
        """Change keys, each alone if the target refuses some. Refused keys stay as they are."""
        single = [TargetChange({key: value}, ()) for key, value in change.change.items()]
        single += [TargetChange({}, (key,)) for key in change.delete]
        error = await self._altered(topic, [change])
        if error is not None and len(single) > 1:
            error = await self._altered(topic, single)
        if error is None:
            self._accept(topic.name, stands=False)
        else:
            self._refuse(topic.name, topic.target, _code_of(error), str(error), stands=False)

    async def _altered(
        self, topic: PlannedTopic, changes: Iterable[TargetChange]
    ) -> BrokerRefused | UnsupportedRequest | None:
        refused: BrokerRefused | UnsupportedRequest | None = None
        for change, delete in changes:
            try:
                with at_target(f"configuration of topic {topic.target!r}"):
                    await alter_configs(self._target, ResourceType.TOPIC, topic.target, change=change, delete=delete)
            except (BrokerRefused, UnsupportedRequest) as error:
                refused = refused or error
        return refused

    def _refuse(self, topic: str, target: str, code: int, cause: str, *, stands: bool = True) -> None:
        """Record a refusal, and log it if it is new."""
        row = topic_refusal_row(self._settings.source.alias, topic, target, code, cause, stands=stands)
        before = self.refusals.get(topic)
        if before is not None and before.stands and not stands:
            return
        if before != row:
            LOG.warning("%s", row.text)
        self.refusals[topic] = row

    def _accept(self, topic: str, *, stands: bool) -> None:
        if (before := self.refusals.get(topic)) is not None and before.stands is stands:
            del self.refusals[topic]

    async def _delete_gone(self, topics: Mapping[TopicName, TopicInfo], owned: tuple[int, ...], slots: int) -> None:
        alias = self._settings.source.alias
        for (target, copy_alias), copy in list(self._at_target.copies.items()):
            is_mine = slot_of(TopicPartition(TopicName(copy.source_topic), 0), slots) in owned
            if copy_alias == alias and is_mine and copy.source_topic not in topics:
                LOG.info("topic %s is gone at %s: deleting %s", copy.source_topic, alias, target)
                try:
                    await _delete_topic(self._target, target)
                except BrokerRefused as error:
                    self._refuse(copy.source_topic, target, error.code, str(error), stands=False)
                    continue
                self.refusals.pop(copy.source_topic, None)
                await self._write_provenance([(tombstone(target, alias), None)])

    async def _write_provenance(self, records: list[tuple[bytes, bytes | None]]) -> None:
        if PROVENANCE_TOPIC not in self._target_topics:
            with at_target():
                await ensure_topic(self._target, NewTopic(PROVENANCE_TOPIC, 1, -1, {"cleanup.policy": "compact"}))
        async with AsyncProducer(self._target) as producer:
            for key, value in records:
                await producer.send(PROVENANCE_TOPIC, value, key=key, partition=0)


def _code_of(error: BrokerRefused | UnsupportedRequest) -> int:
    return error.code if isinstance(error, BrokerRefused) else int(ErrorCode.UNSUPPORTED_VERSION)


async def _delete_topic(client: AsyncClient, name: str) -> None:
    for outcome in await delete_topics(client, [name]):
        if outcome.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise BrokerRefused(outcome.error_code, f"topic {name!r} at the target", outcome.error)


async def topic_configs(client: AsyncClient, names: Iterable[str]) -> dict[str, dict[str, ConfigRow]]:
    """Configurations by topic; topics that are gone or may not be described are left out, and all of brokers before
    1.1.
    """
    selected = list(names)
    try:
        return await configs_by_name(client, ResourceType.TOPIC, selected) if selected else {}
    except UnsupportedRequest:
        return {}

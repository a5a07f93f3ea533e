"""The handlers of the group APIs on one shard, asked as over the wire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import Any, cast

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import CONSUMER_OFFSETS, BrokerId, LeaderEpoch, TopicId, TopicName, TopicPartition
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.controller.image.cluster_image import BrokerImage, Brokers, ClusterImage, PartitionImage, TopicImage
from oncelog.core.groups.shard import GroupShard
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.broker.context import Context, CoordinatorRefusal
from oncelog.handlers.broker.waits import Answer, Coordinate, NextSlice, Offload, UntilConfirmed
from oncelog.handlers.registry import BY_KEY
from oncelog.node.coordinators.group_topics import GroupTopics
from oncelog.wire.messages import join_group as j
from oncelog.wire.messages import offset_commit as oc
from oncelog.wire.messages import offset_fetch as of
from oncelog.wire.messages import sync_group as s
from tests.scenario.groups.driver import Driver, subscription
from tests.unit.handlers.no_limits import UNLIMITED

ME = BrokerId(1)
T_ID, U_ID = TopicId(b"t" * 16), TopicId(b"u" * 16)


def topic(name: str, topic_id: bytes, partitions: int, leader: int = ME) -> TopicImage:
    """A topic led by one broker."""
    partition = PartitionImage(BrokerId(leader), LeaderEpoch(0), (ME,), (ME,))
    return TopicImage(TopicName(name), TopicId(topic_id), (partition,) * partitions)


def image(*topics: TopicImage) -> ClusterImage:
    """A cluster with these topics; broker 2 is another one."""
    return ClusterImage(
        topics={entry.name: entry for entry in topics},
        topic_names={entry.topic_id: entry.name for entry in topics},
        features={"group.version": 1},
        brokers={BrokerId(2): BrokerImage(BrokerId(2), "other", 9, None, 0)},
    )


def run_to_end(steps: Any) -> Any:
    """The result of a worker's steps."""
    try:
        while True:
            next(steps)
    except StopIteration as ended:
        return ended.value


class Authoriser:
    """Denies what it is told to deny: pairs of operation and resource name."""

    def __init__(self) -> None:
        self.denied: set[tuple[Operation, str]] = set()

    def allows(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        """See ``handlers.broker.context.Authoriser``."""
        return (operation, name) not in self.denied

    def allows_any(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        """See ``handlers.broker.context.Authoriser``."""
        return True


class Bench:
    """The handlers on one shard."""

    def __init__(self) -> None:
        self.image = image(topic("t", T_ID, 2), topic("u", U_ID, 1), topic(CONSUMER_OFFSETS, b"o" * 16, 1))
        self.driver = Driver(topics=GroupTopics(cast("Any", self)))
        self.driver.settings.initial_rebalance_delay_ms = 0
        self.refusal = E.NONE
        self.authoriser = Authoriser()
        self.client_id: str | None = "probe"
        self.context: Context | None = None

    broker_id = ME
    position = 1
    config = BrokerConfig({})
    quotas = UNLIMITED
    failed_brokers: frozenset[BrokerId] = frozenset()
    departed_brokers: Brokers = MappingProxyType({})

    def random_bytes(self, size: int) -> bytes:
        """Ids that differ."""
        self.driver.ids += 1
        return self.driver.ids.to_bytes(size, "big")

    def partition_of(self, _group_id: str) -> TopicPartition:
        """See ``handlers.broker.ports.Groups``."""
        return TopicPartition(CONSUMER_OFFSETS, 0)

    def shards(self) -> Iterable[GroupShard]:
        """See ``handlers.broker.ports.Groups``."""
        return [self.driver.shard]

    def ask(self, request: Any, version: int) -> Any:
        """The response after a trip through both directions of the wire; None when parked."""
        request = type(request).decode(b"".join(bytes(chunk) for chunk in request.encode(version)), version)
        ports: Any = self
        context = Context(
            partitions=ports,
            groups=ports,
            transactions=ports,
            cluster=ports,
            authoriser=self.authoriser,
            api_key=request.API_KEY,
            version=version,
            connection_id=1,
            client_id=self.client_id,
            client_host="/127.0.0.1",
            principal="me",
            listener=("me", 9092),
            now_ms=0,
        )
        handled = BY_KEY[request.API_KEY].load_handler()(request, context)
        response = self.drive(handled) if isinstance(handled, Iterator) else handled
        if response is None:
            return None
        return type(response).decode(b"".join(bytes(chunk) for chunk in response.encode(version)), version)

    def drive(self, steps: Any) -> Any:
        """Run a handler that waits for decisions of the shard."""
        answer = None
        try:
            wait = next(steps)
            while True:
                if isinstance(wait, Answer):
                    answer = wait.response
                if isinstance(wait, (Answer, NextSlice)):
                    wait = steps.send(None)
                    continue
                if isinstance(wait, UntilConfirmed):
                    wait = steps.send({})
                    continue
                if isinstance(wait, Offload):
                    wait = steps.send(run_to_end(wait.steps))
                    continue
                assert isinstance(wait, Coordinate)
                if self.refusal is not E.NONE:
                    wait = steps.throw(CoordinatorRefusal(self.refusal))
                    continue
                token, refuses = self.driver.token(), self.driver.refuse_appends
                self.driver.carry_out(wait.decide(self.driver.shard, token, self.driver.now_ms), token)
                self.driver.advance(0)
                if refuses and not self.driver.refuse_appends:
                    wait = steps.throw(CoordinatorRefusal(E.COORDINATOR_NOT_AVAILABLE))
                    continue
                if token not in self.driver.replies:
                    return None
                wait = steps.send(self.driver.replies[token])
        except StopIteration as stopped:
            return answer or stopped.value

    def join(self, member_id: str = "", version: int = 9, group: str = "g", instance: str | None = None) -> Any:
        """JoinGroup with one protocol."""
        request = j.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=member_id,
            group_instance_id=instance if version >= 5 else None,
            protocol_type="consumer",
            protocols=[j.JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
        )
        return self.ask(request, version)

    def stable(self, instance: str | None = None) -> str:
        """A Stable group ``g`` of one member; its id."""
        member_id = self.join(instance=instance).member_id
        if instance is None:
            self.join(member_id)
        assigned = [s.SyncGroupRequestAssignment(member_id=member_id, assignment=b"as")]
        request = s.SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assigned,
        )
        assert self.ask(request, 5) == s.SyncGroupResponse(
            throttle_time_ms=0, error_code=0, protocol_type="consumer", protocol_name="range", assignment=b"as"
        )
        return str(member_id)

    def commit(self, version: int = 9, group: str = "g", **partition: Any) -> list[tuple[str, bytes, int, int]]:
        """OffsetCommit of t-0 unless said otherwise; name, id, partition and error of each partition answered."""
        name, topic_id = partition.pop("topic", "t"), partition.pop("topic_id", T_ID)
        who = {key: partition.pop(key) for key in ("member_id", "generation_id_or_member_epoch") if key in partition}
        part = oc.OffsetCommitRequestPartition(**{"partition_index": 0, "committed_offset": 5, **partition})
        topics = [
            oc.OffsetCommitRequestTopic(
                name=name if version < 10 else "", topic_id=topic_id if version > 9 else bytes(16), partitions=[part]
            )
        ]
        return flat(self.ask(oc.OffsetCommitRequest(group_id=group, topics=topics, **who), version))

    def fetch(self, version: int, topics: list[tuple[str, bytes, list[int]]] | None, group: str = "g") -> Any:
        """OffsetFetch."""
        if version < 8:
            old = (
                None
                if topics is None
                else [of.OffsetFetchRequestTopic(name=n, partition_indexes=parts) for n, _, parts in topics]
            )
            return self.ask(of.OffsetFetchRequest(group_id=group, topics=old), version)
        new = (
            None
            if topics is None
            else [
                of.OffsetFetchRequestTopics(
                    name=n if version < 10 else "", topic_id=i if version > 9 else bytes(16), partition_indexes=parts
                )
                for n, i, parts in topics
            ]
        )
        return self.ask(of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(group_id=group, topics=new)]), version)


def flat(response: oc.OffsetCommitResponse) -> list[tuple[str, bytes, int, int]]:
    """Name, id, partition and error of each partition."""
    return [(t.name, t.topic_id, p.partition_index, p.error_code) for t in response.topics for p in t.partitions]

"""Summarizes a cluster's health: its brokers, their log directories, and partitions that lack a leader or replicas.

As in Apache Kafka's ``kafka-topics``, replicas that a reassignment is adding do not count as missing, and
min.insync.replicas is capped at the number of replicas. A broker that does not answer becomes a row, not a failure. The
picture is not a snapshot: requests follow one another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

from oncelog.admin.cluster import registered_brokers
from oncelog.admin.configs import ResourceType, values_of
from oncelog.admin.eligible_leaders import eligible_leaders
from oncelog.admin.quorum import describe_quorum
from oncelog.admin.reassignments import ReassignmentRow, Replicas, list_reassignments
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.text import counted
from oncelog.client.errors import BrokerRefused, ClientError, RequestTimedOut, explain
from oncelog.client.machine.metadata import TopicInfo
from oncelog.client.programs import Cluster, Program, Sleep, operation, raise_for_error
from oncelog.wire.messages.describe_log_dirs import DescribeLogDirsRequest

BrokerState = Literal["up", "fenced", "unreachable", "absent"]
"""``fenced``: registered, but leads and replicates nothing; it may be down. ``unreachable``: registered, but does not
answer us. ``absent``: has replicas according to metadata, but is not registered."""
MIN_ISR: Final = "min.insync.replicas"
_TOPICS_PER_REQUEST: Final = 500


@dataclass(frozen=True, slots=True)
class DirectoryStatus:
    broker_id: int
    directory: str
    error: str | None
    total_bytes: int | None
    usable_bytes: int | None


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """A broker. ``leads`` and ``replicas`` count partitions; ``error`` says why it did not answer."""

    broker_id: int
    host: str | None
    port: int | None
    rack: str | None
    state: BrokerState
    is_controller: bool
    leads: int
    replicas: int
    directories: list[DirectoryStatus]
    error: str | None = None
    suspected_by: tuple[int, ...] = ()
    """The brokers that find it frozen."""
    suspected_since_ms: int | None = None

    @property
    def is_missed(self) -> bool:
        """True unless the broker is up, or fenced without replicas: stopped after everything was moved off it."""
        return self.state != "up" and (self.state != "fenced" or self.replicas > 0)


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """A partition. ``min_isr`` is None if it may not be read; ``adding`` replicas do not count as missing."""

    topic: str
    partition: int
    leader: int | None
    replicas: Replicas
    isr: Replicas
    min_isr: int | None
    adding: Replicas = ()
    eligible: Replicas = ()
    """Without a leader: replicas out of sync that have all records (KIP-966)."""

    @property
    def has_leader(self) -> bool:
        return self.leader is not None

    @property
    def is_under_replicated(self) -> bool:
        """True if a replica that should be in sync is not; acks=all does not wait for it."""
        return len(self.isr) < len(self.replicas) - len(self.adding)

    @property
    def may_lead(self) -> Replicas:
        """The replicas that may lead it without loss."""
        return (*self.isr, *(replica for replica in self.eligible if replica not in self.isr))

    @property
    def spare(self) -> int | None:
        """In-sync replicas above what acks=all needs; negative if that is refused. None if min.insync.replicas is
        unknown."""
        return None if self.min_isr is None else len(self.isr) - min(self.min_isr, len(self.replicas))


@dataclass(frozen=True, slots=True)
class Counts:
    topics: int
    partitions: int
    leads: Counter[int]
    replicas: Counter[int]


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """``healthy`` means no ``problems``, which are phrases for people."""

    healthy: bool
    problems: list[str]
    cluster_id: str | None
    controller_id: int | None
    brokers: list[BrokerStatus]
    topics: int
    partitions: int
    without_leader: list[PartitionStatus]
    under_replicated: list[PartitionStatus]
    under_min_isr: list[PartitionStatus]
    at_min_isr: list[PartitionStatus]
    offline_directories: list[DirectoryStatus]
    reassignments: list[ReassignmentRow]
    not_seen: list[str] = field(default_factory=list)
    """Requests that the user may not send, or that no controller answers. Without reassignments, a replica that is
    being added counts as missing."""
    lacks_controller: bool = False
    """True if it has no controller, or none answers; ``controller_id`` is also None if it may not be seen."""


class Controller(NamedTuple):
    """``is_known`` is False for a cluster without KRaft: there, brokers name it."""

    node_id: int | None = None
    is_known: bool = False
    unknown_because: str | None = None
    is_silent: bool = False
    """True if no controller answers."""

    @property
    def is_missing(self) -> bool:
        # True during an election, too.
        return self.is_known and self.node_id is None and (self.is_silent or self.unknown_because is None)


NAMED_BY_BROKERS: Final = Controller()
# A missing controller is looked for again after this time: an election is no fault, nor is one slow broker.
ELECTION_MS: Final = 3_000


@operation
def cluster_status(cluster: Cluster, *, spare: bool = True) -> Program[ClusterStatus]:
    """The cluster as it is now. Raises NoBrokerReachable, BrokerRefused.

    Without ``spare``, min.insync.replicas is read only for topics that lack a leader or replicas. ``at_min_isr`` is
    then incomplete, and healthy topics are counted without rows.
    """
    topics = yield from cluster.metadata(None)
    controller = yield from _controller(cluster)
    not_seen = [] if controller.unknown_because is None else [controller.unknown_because]
    reassignments: list[ReassignmentRow] = []
    try:
        # Brokers forward this to the controller, and wait half a minute for one that is down.
        if not controller.is_silent:
            reassignments = yield from list_reassignments(cluster)
    except BrokerRefused as error:
        # Users without rights on the cluster still get everything else.
        if error.code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise
        not_seen.append(str(error))
    selected = topics if spare else {name: topic for name, topic in topics.items() if _lacks_something(topic)}
    partitions = partition_rows(selected.values(), reassignments, (yield from min_isr_of(cluster, list(selected))))
    counts = counts_of(topics.values())
    partitions = yield from _with_eligible(cluster, partitions)
    brokers = yield from _brokers(cluster, counts, controller)
    status = assess(cluster.view.cluster_id, brokers, partitions, reassignments, counts, controller)
    return replace(status, not_seen=not_seen)


def _controller(cluster: Cluster) -> Program[Controller]:
    controller = yield from _present_controller(cluster)
    if controller.is_missing:
        yield Sleep(ELECTION_MS)
        controller = yield from _present_controller(cluster)
    return controller


def _present_controller(cluster: Cluster) -> Program[Controller]:
    try:
        quorum = yield from describe_quorum(cluster)
    except ClientError as error:
        is_silent = isinstance(error, RequestTimedOut) or (
            isinstance(error, BrokerRefused) and error.code == ErrorCode.REQUEST_TIMED_OUT
        )
        return Controller(None, True, f"the controller is unknown: {error}", is_silent)
    return NAMED_BY_BROKERS if quorum is None else Controller(quorum.leader_id, True)


def _with_eligible(cluster: Cluster, rows: list[PartitionStatus]) -> Program[list[PartitionStatus]]:
    places = [TopicPartition(TopicName(row.topic), row.partition) for row in rows if not row.has_leader]
    eligible = yield from eligible_leaders(cluster, places)
    return [
        replace(row, eligible=own.replicas)
        if not row.has_leader and (own := eligible.get(TopicPartition(TopicName(row.topic), row.partition)))
        else row
        for row in rows
    ]


def counts_of(topics: Collection[TopicInfo]) -> Counts:
    partitions = [partition for topic in topics for partition in topic.partitions.values()]
    return Counts(
        topics=sum(bool(topic.partitions) for topic in topics),
        partitions=len(partitions),
        leads=Counter([partition.leader for partition in partitions]),
        replicas=Counter([broker for partition in partitions for broker in partition.replicas]),
    )


def partition_rows(
    topics: Iterable[TopicInfo], reassignments: Iterable[ReassignmentRow], min_isr: Mapping[str, int]
) -> list[PartitionStatus]:
    adding = {(reassignment.topic, reassignment.partition): reassignment.adding for reassignment in reassignments}
    return [
        PartitionStatus(
            topic.name,
            index,
            partition.leader if partition.leader >= 0 else None,
            partition.replicas,
            partition.isr,
            min_isr.get(topic.name),
            adding.get((topic.name, index), ()),
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
        for index, partition in sorted(topic.partitions.items())
    ]


def assess(
    cluster_id: str | None,
    brokers: list[BrokerStatus],
    partitions: list[PartitionStatus],
    reassignments: list[ReassignmentRow],
    counts: Counts,
    controller: Controller = NAMED_BY_BROKERS,
) -> ClusterStatus:
    """Sort the rows by condition and name the problems; being at min ISR and reassignments are none. Partitions without
    a row are healthy."""
    offline = [directory for broker in brokers for directory in broker.directories if directory.error is not None]
    without_leader = [partition for partition in partitions if not partition.has_leader]
    under_replicated = [partition for partition in partitions if partition.is_under_replicated]
    under_min_isr = [partition for partition in partitions if partition.spare is not None and partition.spare < 0]
    problems = [f"broker {broker.broker_id} is {broker.state}" for broker in brokers if broker.is_missed]
    controller_id = controller.node_id
    if not controller.is_known:
        controller_id = next((broker.broker_id for broker in brokers if broker.is_controller), None)
    lacks_controller = controller_id is None and (controller.is_silent or controller.unknown_because is None)
    if lacks_controller:
        problems.append("no controller answers" if controller.is_silent else "no controller")
    for rows, phrase in (
        (without_leader, "without leader"),
        (under_replicated, "under-replicated"),
        (under_min_isr, "under min ISR"),
    ):
        if rows:
            problems.append(f"{counted(len(rows), 'partition')} {phrase}")
    problems += [f"{row.directory} of broker {row.broker_id} is offline" for row in offline]
    return ClusterStatus(
        healthy=not problems,
        problems=problems,
        cluster_id=cluster_id,
        controller_id=controller_id,
        brokers=brokers,
        topics=counts.topics,
        partitions=counts.partitions,
        without_leader=without_leader,
        under_replicated=under_replicated,
        under_min_isr=under_min_isr,
        at_min_isr=[partition for partition in partitions if partition.spare == 0],
        offline_directories=offline,
        reassignments=reassignments,
        lacks_controller=lacks_controller,
    )


def _lacks_something(topic: TopicInfo) -> bool:
    return any(
        partition.leader < 0 or len(partition.isr) < len(partition.replicas) for partition in topic.partitions.values()
    )


def min_isr_of(cluster: Cluster, names: Sequence[str]) -> Program[dict[str, int]]:
    values: dict[str, str | None] = {}
    for start in range(0, len(names), _TOPICS_PER_REQUEST):
        values |= yield from values_of(cluster, ResourceType.TOPIC, names[start : start + _TOPICS_PER_REQUEST], MIN_ISR)
    return {name: int(value) for name, value in values.items() if value is not None}


def _brokers(cluster: Cluster, counted: Counts, controller: Controller) -> Program[list[BrokerStatus]]:
    """A row for each broker that is registered or has replicas, with the directories of those that are up."""
    leads, replicas = counted.leads, counted.replicas
    broker_rows = yield from registered_brokers(cluster)
    registered = {row.broker_id: row for row in broker_rows}
    rows = []
    for broker_id in sorted({*registered, *replicas}):
        broker = registered.get(broker_id)
        counts = leads[broker_id], replicas[broker_id]
        # Metadata names it as a replica, but it has unregistered or never came back.
        if broker is None:
            rows.append(BrokerStatus(broker_id, None, None, None, "absent", False, *counts, []))
            continue
        state: BrokerState = "fenced" if broker.is_fenced else "up"
        directories: list[DirectoryStatus] = []
        error = None
        if state == "up":
            try:
                directories = yield from _directories(cluster, broker_id)
            except BrokerRefused as refused:
                error = str(refused)
            except ClientError as failed:
                state, error = "unreachable", str(failed)
        is_controller = broker_id == controller.node_id if controller.is_known else broker.is_controller
        address = broker.host, broker.port, broker.rack
        suspicion = broker.suspected_by, broker.suspected_since_ms
        rows.append(BrokerStatus(broker_id, *address, state, is_controller, *counts, directories, error, *suspicion))
    return rows


def _directories(cluster: Cluster, broker_id: int) -> Program[list[DirectoryStatus]]:
    # An empty list of topics: the directories without their replicas.
    response = yield from cluster.request(DescribeLogDirsRequest(topics=[]), broker=broker_id)
    raise_for_error(response, f"log directories of broker {broker_id}")
    return [
        DirectoryStatus(
            broker_id,
            result.log_dir,
            explain(result.error_code) if result.error_code else None,
            result.total_bytes if result.total_bytes >= 0 else None,
            result.usable_bytes if result.usable_bytes >= 0 else None,
        )
        for result in response.results
    ]

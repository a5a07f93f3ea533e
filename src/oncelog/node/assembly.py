"""Assembles a node: opens the data directory's logs, recovers them, and joins the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from oncelog.base.ids import BrokerId, TopicId, TopicPartition, partition_of_directory, uuid_text
from oncelog.base.security import Endpoint, SecurityProtocol
from oncelog.base.tree import Operation
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.topic import TopicConfigs
from oncelog.core.controller.brokers.registration import Registration as Registration
from oncelog.core.controller.brokers.registration import RegistrationRefused, check_complete, register
from oncelog.core.controller.entities.entity_writes import write_entities
from oncelog.core.controller.image.client_entities import ClientEntity
from oncelog.core.controller.image.cluster_image import EMPTY_IMAGE, ClusterImage, load_image
from oncelog.node.kernel.events import Report
from oncelog.node.listeners.broker_settings import Address, Settings
from oncelog.node.node import Node
from oncelog.node.replication.partitions import log_config, storage_config
from oncelog.ports import Conflict, Coordination, Entropy, Files, OutcomeUnknown, SessionLost, TreeUnavailable
from oncelog.storage.errors import UnusableDirectory
from oncelog.storage.log_config import LogConfig
from oncelog.storage.log_directory import LogDirectory
from oncelog.storage.meta_properties import MetaProperties, read_meta_properties, write_meta_properties

DEFAULT_NODE_ID: Final = BrokerId(1)
NO_ID: Final = bytes(16)
INITIAL_USERS: Final = "oncelog.initial.users"
# Attempts to join while other brokers keep joining.
_ATTEMPTS: Final = 50
# Times that the tree may be unavailable while a broker joins; each adapter waits for seconds before it says so.
_INTERRUPTIONS: Final = 5
_NO_TREE: Final = (OutcomeUnknown, SessionLost, TreeUnavailable)


class StartRefused(Exception):
    """The broker cannot start; the message says why and what to do."""


class Outside(NamedTuple):
    """The world outside a node: files, coordination tree and randomness."""

    files: Files
    coordination: Coordination
    entropy: Entropy


class Assembled(NamedTuple):
    node: Node
    registration: Registration
    """The registration with which the broker rejoins after losing its session."""
    reports: list[Report]
    """Messages for the operator."""


def assemble(
    outside: Outside,
    settings: Settings,
    bound: Mapping[str, Address],
    now_ms: int,
    ready: Callable[[], None] = lambda: None,
) -> Assembled:
    """Open and recover the logs, join the cluster, make the node. ``bound``: the address of each listener. ``ready`` is
    called before joining: clients may connect from then on. Raises StartRefused.
    """
    try:
        image = load_image(outside.coordination.subtree("/"))
        check_complete(image)  # before a new directory is given a cluster's id
        identity = _identity(outside, settings.config, image)
        config = _config_of(settings, identity.meta)
        # Recovery comes before registration: a registered broker is given partitions to lead at once.
        logs = _open_logs(outside, image, config, identity.meta.node_id, now_ms)
    except (RegistrationRefused, UnusableDirectory) as error:
        raise StartRefused(str(error)) from None
    except _NO_TREE as error:
        raise _without_tree(error) from error
    ready()
    try:
        config, who, position, image = _join(outside, settings, bound, identity, image, logs, now_ms)
    except _NO_TREE as error:
        raise _without_tree(error) from error
    if logs.lost_from:
        # The recovery points lie beyond the ends of these logs: records written there must not count as synced.
        logs.checkpoints()
    # Logs are matched against the tree as of now: topics may have been replaced during recovery.
    reports = [*_damages(image, logs, who.broker_id), *set_strays_aside(image, logs, who.broker_id, outside.entropy)]
    node = Node(who.broker_id, config, image, position, logs, outside.entropy)
    return Assembled(node, who.again(), reports)


def check_before_a_new_tree(files: Files) -> None:
    """Refuse logs before an empty tree is made beside them: the next start would find it. Raises StartRefused."""
    try:
        _check_logs_have_an_owner(files, read_meta_properties(files), EMPTY_IMAGE, None)
    except UnusableDirectory as error:
        raise StartRefused(str(error)) from None


def _without_tree(error: Exception) -> StartRefused:
    return StartRefused(
        "the coordination tree was unavailable while this broker joined the cluster "
        f"({type(error).__name__}: {error}); start the broker again"
    )


class _Joined(NamedTuple):
    config: BrokerConfig
    registration: Registration
    position: int
    image: ClusterImage


def _join(
    outside: Outside,
    settings: Settings,
    bound: Mapping[str, Address],
    identity: _Identity,
    image: ClusterImage,
    logs: LogDirectory,
    now_ms: int,
) -> _Joined:
    """Register the broker and read the cluster's metadata. Raises StartRefused; one of ``_NO_TREE`` if the tree stays
    unavailable."""
    coordination = outside.coordination
    interruptions = 0
    for _ in range(_ATTEMPTS):
        config = _config_of(settings, identity.meta)
        who = _registration(identity.meta, config, settings.listeners.registered(bound), logs)
        try:
            coordination.commit([*register(image, who, now_ms), *_initial_users(image, config)])
            position, nodes = coordination.snapshot()
            return _Joined(config, who, position, load_image(nodes))
        except RegistrationRefused as error:
            another = _another_identity(identity, image)
            if another is None:
                raise StartRefused(str(error)) from None
            identity = another
            write_meta_properties(outside.files, identity.meta)
        except Conflict:
            pass  # another broker joined in between
        except _NO_TREE:
            interruptions += 1
            if interruptions == _INTERRUPTIONS:
                raise
            coordination.renew()  # the registration may have been written: it ends with its session
        image = load_image(coordination.subtree("/"))
    raise StartRefused("other brokers joined the cluster during every attempt to register this one; start it again")


class _Identity(NamedTuple):
    meta: MetaProperties
    is_new: bool = False
    """The directory was empty: it may still join another cluster."""
    is_chosen: bool = False
    """The id was chosen by this start: another one is as good."""


def _identity(outside: Outside, config: BrokerConfig, image: ClusterImage) -> _Identity:
    """Read the directory's identity, or write a new one: the tree's cluster, the configured id or the next free one.
    Raises UnusableDirectory.
    """
    configured = BrokerId(config.node_id) if config.is_set("node.id") or config.is_set("broker.id") else None
    properties = read_meta_properties(outside.files)
    _check_logs_have_an_owner(outside.files, properties, image, configured)
    if properties is None:
        properties = MetaProperties(
            cluster_id=uuid_text(outside.entropy.token(16)) if image.cluster_id is None else image.cluster_id,
            node_id=_free_id(image) if configured is None else configured,
            directory_id=uuid_text(outside.entropy.token(16)),
        )
        write_meta_properties(outside.files, properties)
        return _Identity(properties, is_new=True, is_chosen=configured is None)
    if configured is not None and configured != properties.node_id:
        raise UnusableDirectory(
            f"the data directory belongs to node {properties.node_id}, but node.id={configured} is configured; "
            "use another directory or the same id"
        )
    if not properties.directory_id:
        # Apache Kafka's files had none before version 3.7. Without one a restart is not told from another broker.
        properties = properties._replace(directory_id=uuid_text(outside.entropy.token(16)))
        write_meta_properties(outside.files, properties)
    return _Identity(properties)


def _check_logs_have_an_owner(
    files: Files, properties: MetaProperties | None, image: ClusterImage, configured: BrokerId | None
) -> None:
    """Raises UnusableDirectory."""
    if any(partition_of_directory(name) is not None for name in files.list("")):
        from oncelog.node.directory_owner import check_logs_have_an_owner  # a new broker starts without it

        check_logs_have_an_owner(files, properties, image, configured)


def _another_identity(identity: _Identity, image: ClusterImage) -> _Identity | None:
    """Another identity for a new directory whose cluster or id another broker took; None if none is possible."""
    meta = identity.meta
    taken = meta.node_id in image.brokers
    if not identity.is_new or (taken and not identity.is_chosen):
        return None
    cluster_id = meta.cluster_id if image.cluster_id is None else image.cluster_id
    another = MetaProperties(cluster_id, _free_id(image) if taken else meta.node_id, meta.directory_id)
    return None if another == meta else identity._replace(meta=another)


def _free_id(image: ClusterImage) -> BrokerId:
    """An id that no broker of the cluster has ever had."""
    return BrokerId(max({*image.broker_records, *image.brokers}, default=DEFAULT_NODE_ID - 1) + 1)


def _config_of(settings: Settings, meta: MetaProperties) -> BrokerConfig:
    return BrokerConfig({**settings.config.static, "node.id": str(meta.node_id), "log.dirs": settings.data_directory})


def _initial_users(image: ClusterImage, config: BrokerConfig) -> list[Operation]:
    """Operations that add the configured users to a new cluster, in the commit that creates it. Raises StartRefused."""
    text = config.get(INITIAL_USERS)
    if text is None:
        return []
    from oncelog.core.sasl.initial_users import InitialUsersUnreadable, read_initial_users

    try:
        users = read_initial_users(text)
    except InitialUsersUnreadable as error:
        raise StartRefused(str(error)) from None
    # A user that was deleted must not come back with the next start.
    if image.cluster_id is not None:
        return []
    return write_entities(image, {ClientEntity(user=name): credentials for name, credentials in users.items()})


def _registration(
    meta: MetaProperties, config: BrokerConfig, endpoints: tuple[Endpoint, ...], logs: LogDirectory
) -> Registration:
    plaintext = (endpoint for endpoint in endpoints if endpoint.protocol is SecurityProtocol.PLAINTEXT)
    first = next(plaintext, endpoints[0])
    return Registration(
        meta.node_id,
        first.host,
        first.port,
        config.get("broker.rack"),
        meta.cluster_id,
        config.get("min.insync.replicas"),
        meta.directory_id,
        was_clean=logs.was_clean,
        lost=logs.lost(),
        sync_policy=config.get("log.sync.policy"),
        last_epoch=logs.broker_epoch,
        endpoints=endpoints,
        freeze_timeout_ms=config.get("oncelog.broker.freeze.timeout.ms"),
    )


def _open_logs(
    outside: Outside, image: ClusterImage, config: BrokerConfig, broker_id: BrokerId, now_ms: int
) -> LogDirectory:
    current = config.with_dynamic(*image.dynamic_broker_configs(broker_id))
    topic_configs = TopicConfigs(current)

    def config_of(partition: TopicPartition) -> LogConfig:
        topic = image.topics.get(partition.topic)
        return log_config(topic_configs.of({} if topic is None else topic.configs))

    return LogDirectory.open(outside.files, config_of=config_of, now_ms=now_ms, storage=storage_config(current))


def _damages(image: ClusterImage, logs: LogDirectory, broker_id: BrokerId) -> list[Report]:
    """Report each log that recovery has truncated below its synced end, and each whose directory is missing."""
    return [
        Report("error", f"{partition} {damage}; they are copied from another replica, if there is one")
        for partition, offset in sorted(logs.lost_from.items())
        if (damage := _damage(image, logs, broker_id, partition, offset)) is not None
    ]


def _damage(
    image: ClusterImage, logs: LogDirectory, broker_id: BrokerId, partition: TopicPartition, offset: int
) -> str | None:
    if partition in logs.logs:
        return f"is damaged at offset {offset}: records from there on were on the disk and cannot be read"
    image_partition = image.partition(partition)
    if image_partition is None or broker_id not in image_partition.replicas:
        return None  # it was deleted, or its replica moved, before this broker's last checkpoint
    return f"is missing: its directory is gone, and its records from offset {offset} on were on the disk"


def set_strays_aside(image: ClusterImage, logs: LogDirectory, broker_id: BrokerId, entropy: Entropy) -> list[Report]:
    """Move away the logs that are not this broker's: their topics were deleted, or their replicas moved, while it was
    down."""
    reports = []
    unidentified = logs.unidentified()
    for partition, log in list(logs.logs.items()):
        reason = _stray_reason(image, partition, log.topic_id, broker_id)
        image_partition = image.partition(partition)
        if (
            reason is None
            and partition in unidentified
            and image_partition
            and broker_id not in (*image_partition.isr, *image_partition.elr)
        ):
            # Without a topic id the log may be a deleted topic's. It is kept only if the cluster counts on it.
            reason = "has no topic id, and other replicas have the records"
        if reason is not None:
            name = logs.set_aside(partition, entropy.token(16))
            reports.append(Report("warning", f"{partition} {reason}: it is set aside as {name}"))
    return reports


def _stray_reason(image: ClusterImage, partition: TopicPartition, topic_id: bytes, broker_id: BrokerId) -> str | None:
    topic = image.topics.get(partition.topic)
    image_partition = image.partition(partition)
    if topic is None or image_partition is None:
        return "belongs to no topic of this cluster"
    if topic_id not in (NO_ID, topic.topic_id):
        other = image.topic_names.get(TopicId(topic_id))
        return "is of a deleted topic of this name" if other is None else f"has the id of topic {other}"
    return None if broker_id in image_partition.replicas else "has its replicas on other brokers"

"""Makes a node over its ports: whose directory it is, joining the cluster, opening and recovering the logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from oncelog.base.ids import BrokerId, TopicPartition, uuid_text
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.topic import TopicConfigs
from oncelog.core.controller.image import ClusterImage, load_image
from oncelog.core.controller.registration import Registration as Registration
from oncelog.core.controller.registration import RegistrationRefused, register
from oncelog.node.authoriser import AllowAll
from oncelog.node.events import Report
from oncelog.node.node import Node
from oncelog.node.partitions.log_configs import log_config, storage_config
from oncelog.node.settings import Address, Settings
from oncelog.ports import Coordination, Entropy, Files
from oncelog.storage.config import LogConfig
from oncelog.storage.directory import LogDirectory
from oncelog.storage.errors import UnusableDirectory
from oncelog.storage.meta_properties import MetaProperties, read_meta_properties, write_meta_properties

DEFAULT_NODE_ID: Final = BrokerId(1)
NO_ID: Final = bytes(16)


class StartRefused(Exception):
    """The broker cannot start; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Outside:
    """The ports a node stands on."""

    files: Files
    coordination: Coordination
    entropy: Entropy


@dataclass(frozen=True, slots=True)
class Assembled:
    """A node that is ready to start."""

    node: Node
    registration: Registration
    """How it joined; a lost session is replaced by the same."""
    reports: list[Report]
    """What an operator should read."""


def assemble(outside: Outside, settings: Settings, address: Address, now_ms: int) -> Assembled:
    """Join the cluster under ``address``, open and recover the logs, make the node.

    Raises StartRefused. Recovery reads what it must: this may take its time.
    """
    try:
        meta = _meta_properties(outside, settings.config)
    except UnusableDirectory as error:
        raise StartRefused(str(error)) from None
    config = BrokerConfig({**settings.config.static, "node.id": str(meta.node_id), "log.dirs": settings.data_directory})
    who = _registration(meta, config, settings.advertised or address)
    position, image = _join(outside.coordination, who, now_ms)
    logs, reports = _open_logs(outside, image, config, meta.node_id, now_ms)
    node = Node(meta.node_id, config, image, position, logs, outside.entropy, AllowAll())
    return Assembled(node, who, reports)


def _meta_properties(outside: Outside, config: BrokerConfig) -> MetaProperties:
    configured = BrokerId(config.node_id) if config.node_id >= 0 else None
    found = read_meta_properties(outside.files)
    if found is None:
        found = MetaProperties(
            cluster_id=uuid_text(outside.entropy.token(16)),
            node_id=DEFAULT_NODE_ID if configured is None else configured,
            directory_id=uuid_text(outside.entropy.token(16)),
        )
        write_meta_properties(outside.files, found)
    elif configured is not None and configured != found.node_id:
        raise UnusableDirectory(
            f"the data directory belongs to node {found.node_id}, but node.id={configured} is configured; "
            "use another directory or the same id"
        )
    return found


def _registration(meta: MetaProperties, config: BrokerConfig, address: Address) -> Registration:
    rack, min_insync_replicas = config.get("broker.rack"), config.get("min.insync.replicas")
    return Registration(meta.node_id, *address, rack, meta.cluster_id, min_insync_replicas, meta.directory_id)


def _join(coordination: Coordination, who: Registration, now_ms: int) -> tuple[int, ClusterImage]:
    image = load_image(coordination.subtree("/"))
    try:
        coordination.commit(register(image, who, now_ms))
    except RegistrationRefused as error:
        raise StartRefused(str(error)) from None
    position, nodes = coordination.snapshot()
    return position, load_image(nodes)


def _open_logs(
    outside: Outside, image: ClusterImage, config: BrokerConfig, broker_id: BrokerId, now_ms: int
) -> tuple[LogDirectory, list[Report]]:
    current = config.with_dynamic(*image.dynamic_broker_configs(broker_id))
    topic_configs = TopicConfigs(current)

    def config_of(partition: TopicPartition) -> LogConfig:
        topic = image.topics.get(partition.topic)
        return log_config(topic_configs.of({} if topic is None else topic.configs))

    logs = LogDirectory.open(outside.files, config_of=config_of, now_ms=now_ms, storage=storage_config(current))
    reports = []
    for partition, log in list(logs.logs.items()):
        if not _belongs(image, partition, log.topic_id):
            reports.append(Report("warning", f"{partition} belongs to no topic of this cluster, it is set aside"))
            logs.set_aside(partition, outside.entropy.token(16))
    return logs, reports


def _belongs(image: ClusterImage, partition: TopicPartition, topic_id: bytes) -> bool:
    topic = image.topics.get(partition.topic)
    return topic is not None and partition.partition < len(topic.partitions) and topic_id in (NO_ID, topic.topic_id)

"""Builds a broker from its settings: configuration, data directory, coordination tree, cluster membership, node."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from oncelog.base.ids import BrokerId, TopicPartition, uuid_text
from oncelog.coordination.sqlite import SqliteTree, TreeUnusable
from oncelog.core.configs.broker import BrokerConfig, parse_broker_config
from oncelog.core.configs.kinds import ConfigError
from oncelog.core.configs.topic import TopicConfigs
from oncelog.core.controller.image import ClusterImage, load_image
from oncelog.core.controller.registration import Registration, RegistrationRefused, register
from oncelog.node.authoriser import AllowAll
from oncelog.node.log_configs import log_config
from oncelog.node.node import Node
from oncelog.ports import Clock, Coordination
from oncelog.runtime.addresses import Address, parse_address, parse_listeners
from oncelog.runtime.clock import SystemEntropy
from oncelog.runtime.files import DirectoryInUse, DiskFiles
from oncelog.storage.config import LogConfig, StorageConfig
from oncelog.storage.directory import LogDirectory
from oncelog.storage.errors import UnusableDirectory
from oncelog.storage.meta_properties import MetaProperties, read_meta_properties, write_meta_properties

DEFAULT_DATA_DIRECTORY: Final = "oncelog-data"
DEFAULT_LISTEN: Final = ("127.0.0.1", 9092)
DEFAULT_NODE_ID: Final = BrokerId(1)
TREE_FILE: Final = "coordination.db"
_LOG: Final = logging.getLogger("oncelog.broker")


class StartRefused(Exception):
    """The broker cannot start; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a broker is started with."""

    config: BrokerConfig
    data_directory: Path
    listen: Address
    """Host and port; port 0 takes a free one."""
    advertised: Address | None
    """What clients are told instead of the address they came by."""


@dataclass(slots=True)
class Opened:
    """A data directory in use by this process."""

    files: DiskFiles
    tree: SqliteTree
    coordination: Coordination
    meta: MetaProperties

    def release(self) -> None:
        """Close everything and give the directory's lock back."""
        self.coordination.close()
        self.tree.close()
        self.files.close()


def read_settings(
    properties: Path | None, options: Sequence[str], *, data_dir: Path | None, listen: str | None
) -> Settings:
    """Settings from a properties file and the command line, which wins. Raises ConfigError or StartRefused."""
    values: dict[str, str] = {}
    if properties is not None:
        try:
            values.update(_parse_properties(properties.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            raise StartRefused(f"cannot read {properties}: {error}") from None
    for option in options:
        key, separator, value = option.partition("=")
        if not separator or not key:
            raise StartRefused(f"-o {option}: write -o key=value")
        values[key.strip()] = value.strip()
    return settings_from(values, data_directory=data_dir, listen=None if listen is None else parse_address(listen))


def settings_from(
    values: Mapping[str, str], *, data_directory: Path | None = None, listen: Address | None = None
) -> Settings:
    """Settings from configuration keys. Raises ConfigError."""
    config, warnings = parse_broker_config(values)
    for warning in warnings:
        _LOG.warning("%s", warning)
    if data_directory is None:
        given = config.is_set("log.dirs") or config.is_set("log.dir")
        data_directory = Path(config.data_directory if given else DEFAULT_DATA_DIRECTORY)
    listeners = parse_listeners(config.get("listeners")) if config.is_set("listeners") else None
    advertised = config.get("advertised.listeners")
    return Settings(
        config=BrokerConfig({**config.static, "log.dirs": str(data_directory.absolute())}),
        data_directory=data_directory,
        listen=listen or listeners or DEFAULT_LISTEN,
        advertised=parse_listeners(advertised) if advertised else None,
    )


def _parse_properties(text: str) -> dict[str, str]:
    """Java's properties format as far as server.properties uses it: ``key=value``, comments, continued lines."""
    values: dict[str, str] = {}
    for line in text.replace("\\\n", "").splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, separator, value = stripped.partition("=")
        if not separator:
            key, _, value = stripped.partition(":")
        values[key.strip()] = value.strip()
    return values


def open_directory(settings: Settings) -> Opened:
    """Lock and open the data directory. Raises StartRefused."""
    path = settings.data_directory
    try:
        files = DiskFiles(path)
        files.lock()
    except DirectoryInUse as error:
        raise StartRefused(f"{error}; stop it, or choose another --data-dir") from None
    except OSError as error:
        raise StartRefused(f"cannot use {path} as data directory: {error.strerror or error}") from None
    try:
        meta = _meta(files, settings.config)
        tree = SqliteTree(path / TREE_FILE)
    except (UnusableDirectory, TreeUnusable) as error:
        files.close()
        raise StartRefused(str(error)) from None
    except OSError as error:
        files.close()
        raise StartRefused(f"cannot use {path} as data directory: {error.strerror or error}") from None
    return Opened(files, tree, tree.session(), meta)


def _meta(files: DiskFiles, config: BrokerConfig) -> MetaProperties:
    configured = BrokerId(config.node_id) if config.node_id >= 0 else None
    found = read_meta_properties(files)
    if found is None:
        entropy = SystemEntropy()
        found = MetaProperties(
            cluster_id=uuid_text(entropy.token(16)),
            node_id=DEFAULT_NODE_ID if configured is None else configured,
            directory_id=uuid_text(entropy.token(16)),
        )
        write_meta_properties(files, found)
    elif configured is not None and configured != found.node_id:
        raise UnusableDirectory(
            f"the data directory belongs to node {found.node_id}, node.id={configured} is configured; "
            "use another directory or the same id"
        )
    return found


def join_cluster(opened: Opened, settings: Settings, address: Address, clock: Clock) -> Node:
    """Register this broker, open and recover its logs, and make the node. Raises StartRefused."""
    image = load_image(opened.coordination.subtree("/"))
    host, port = settings.advertised or address
    meta = opened.meta
    config = BrokerConfig({**settings.config.static, "node.id": str(meta.node_id)})
    who = Registration(meta.node_id, host, port, config.get("broker.rack"), meta.cluster_id)
    try:
        opened.coordination.commit(register(image, who, clock.now_ms()))
    except RegistrationRefused as error:
        raise StartRefused(str(error)) from None
    image = load_image(opened.coordination.subtree("/"))
    logs = _open_logs(opened.files, image, config, clock, meta.node_id)
    return Node(meta.node_id, config, image, logs, SystemEntropy(), AllowAll())


def _open_logs(
    files: DiskFiles, image: ClusterImage, config: BrokerConfig, clock: Clock, broker_id: BrokerId
) -> LogDirectory:
    current = config.with_dynamic(*image.dynamic_broker_configs(broker_id))
    topic_configs = TopicConfigs(current)

    def config_of(partition: TopicPartition) -> LogConfig:
        topic = image.topics.get(partition.topic)
        return log_config(topic_configs.of({} if topic is None else topic.configs))

    storage = StorageConfig(
        producer_id_expiration_ms=int(current.get("producer.id.expiration.ms")),
        producer_id_expiration_check_interval_ms=int(current.get("producer.id.expiration.check.interval.ms")),
        cleaner_dedupe_buffer_bytes=int(current.get("log.cleaner.dedupe.buffer.size")),
        cleaner_enable=bool(current.get("log.cleaner.enable")),
        max_decompressed_bytes=int(current.get("oncelog.decompressed.max.bytes")),
    )
    logs = LogDirectory.open(files, config_of=config_of, now_ms=clock.now_ms(), storage=storage)
    for partition, log in list(logs.logs.items()):
        topic = image.topics.get(partition.topic)
        if (
            topic is None
            or partition.partition >= len(topic.partitions)
            or _belongs_elsewhere(log.topic_id, topic.topic_id)
        ):
            _LOG.warning("%s belongs to no topic of this cluster, it is set aside", partition)
            logs.set_aside(partition, os.urandom(16))
    return logs


def _belongs_elsewhere(found: bytes, expected: bytes) -> bool:
    return any(found) and found != expected


__all__ = ["ConfigError", "Opened", "Settings", "StartRefused", "join_cluster", "open_directory", "read_settings"]

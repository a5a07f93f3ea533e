"""The layout of the coordination tree: the path of each node and the JSON it holds.

The layout is Apache Kafka's in ZooKeeper (``spec/distribution-1.0.txt``); nodes that Kafka does not have are below
``/oncelog``. An unreadable node raises ``DamagedFact``: the tree is ours, so this is never a peer's mistake.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

from oncelog.base.ids import BrokerId, TopicId, TopicName, uuid_bytes, uuid_text
from oncelog.base.security import Endpoint, SecurityProtocol
from oncelog.base.tree import Create
from oncelog.core.controller.image.model import (
    UNKNOWN_BROKER_EPOCH,
    UNKNOWN_MS,
    Assignment,
    BrokerImage,
    BrokerRecord,
    FeatureRange,
    PartitionImage,
    Suspicion,
    TreeFormats,
)

BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
TOPIC_CONFIGS: Final = "/config/topics"
BROKER_CONFIGS: Final = "/config/brokers"
GROUP_CONFIGS: Final = "/config/groups"
CLIENT_METRICS_CONFIGS: Final = "/config/client-metrics"
USER_CONFIGS: Final = "/config/users"
CLIENT_CONFIGS: Final = "/config/clients"
IP_CONFIGS: Final = "/config/ips"
CLUSTER_ID: Final = "/cluster/id"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
FEATURES: Final = "/feature"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
BROKER_EPOCH: Final = "/oncelog/broker_epoch"
"""The last broker epoch assigned. (ZooKeeper's is a transaction id, which other trees do not have.)"""
BROKER_RECORDS: Final = "/oncelog/brokers"
"""Parent of the persistent records of brokers."""
ADOPTING: Final = "/oncelog/adopting"
"""The id of a cluster whose tree is being copied here by ``oncelog cluster adopt``; no broker can join meanwhile."""
LOGIN_SECRET: Final = "/oncelog/login_secret"
"""Random bytes that determine the salt for user names without a credential, the same on every broker."""
TREE_FORMAT: Final = "/oncelog/format"
"""The tree's format number (``tree_format``)."""
SUSPICIONS: Final = "/oncelog/suspicions"
"""Parent of the suspicions that a broker is frozen: ephemeral nodes of the brokers that observe it."""
DELETED_TOPICS: Final = "/oncelog/deleted_topics"
"""The version of this node rises when topics are deleted. A new node starts at version 0, so a late write could hit
another topic of the same name: every write to a topic's nodes checks this one.
"""

BASE_PATHS: Final = (
    "/admin",
    "/admin/delete_topics",
    "/brokers",
    BROKER_IDS,
    "/brokers/seqid",
    TOPICS,
    "/cluster",
    "/config",
    BROKER_CONFIGS,
    "/config/changes",
    CLIENT_METRICS_CONFIGS,
    CLIENT_CONFIGS,
    GROUP_CONFIGS,
    IP_CONFIGS,
    TOPIC_CONFIGS,
    USER_CONFIGS,
    "/isr_change_notification",
    "/log_dir_event_notification",
    "/oncelog",
    BROKER_RECORDS,
    DELETED_TOPICS,
    SUSPICIONS,
)
"""Nodes without a value: parents of others, and nodes of Apache Kafka's brokers that stay empty here but that its
ZooKeeper tools require. The ZooKeeper adapter creates ``/consumers``.
"""

_PLAINTEXT: Final = SecurityProtocol.PLAINTEXT

DEFAULT_BROKER: Final = "<default>"
"""Name of the node with configs for all brokers."""


class DamagedFact(Exception):
    """The message has the node's path."""

    def __init__(self, path: str, value: bytes) -> None:
        super().__init__(f"node {path} of the coordination tree is damaged: cannot decode {value[:200]!r}")


def missing_base(existing: Iterable[str]) -> list[Create]:
    present = set(existing)
    return [Create(path, b"") for path in BASE_PATHS if path not in present]


def topic_path(topic: TopicName) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: TopicName) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: TopicName, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: TopicName, partition: int) -> str:
    """The path of a partition's leader, leader epoch and in-sync replicas."""
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def topic_config_path(topic: TopicName) -> str:
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_path(broker_id: BrokerId) -> str:
    """The path of a broker's ephemeral registration."""
    return f"{BROKER_IDS}/{broker_id}"


def broker_record_path(broker_id: BrokerId) -> str:
    """The path of a broker's persistent record."""
    return f"{BROKER_RECORDS}/{broker_id}"


def suspicion_path(suspect: BrokerId, observer: BrokerId) -> str:
    return f"{SUSPICIONS}/{suspect}.{observer}"


def dumps(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def loads(path: str, value: bytes) -> dict[str, Any]:
    try:
        document = json.loads(value)
    except ValueError:
        document = None
    # Valid JSON of another kind is damage too.
    if not isinstance(document, dict):
        raise DamagedFact(path, value)
    return document


def topic_value(topic_id: TopicId, assignments: Iterable[Assignment]) -> bytes:
    partitions: dict[str, list[int]] = {}
    adding: dict[str, list[int]] = {}
    removing: dict[str, list[int]] = {}
    for partition, assignment in enumerate(assignments):
        name = str(partition)
        partitions[name] = list(assignment.replicas)
        if assignment.adding:
            adding[name] = list(assignment.adding)
        if assignment.removing:
            removing[name] = list(assignment.removing)
    facts = {
        "partitions": partitions,
        "topic_id": uuid_text(topic_id),
        "adding_replicas": adding,
        "removing_replicas": removing,
        "version": 3,
    }
    return dumps(facts)


def read_topic(path: str, value: bytes) -> tuple[TopicId, list[Assignment]]:
    facts = loads(path, value)
    try:
        partitions, adding, removing = (facts.get(key) or {} for key in _ASSIGNMENT_KEYS)
        assignments = [
            Assignment(_brokers(partitions[name]), _brokers(adding.get(name, ())), _brokers(removing.get(name, ())))
            for name in map(str, range(len(partitions)))
        ]
        return TopicId(uuid_bytes(facts["topic_id"])), assignments
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedFact(path, value) from error


def is_foreign_topic(path: str, value: bytes) -> bool:
    """True for a topic's node without an id, as tools before Kafka 2.8 write it."""
    return b'"topic_id"' not in value and isinstance(loads(path, value).get("partitions"), dict)


_ASSIGNMENT_KEYS: Final = ("partitions", "adding_replicas", "removing_replicas")


def _brokers(numbers: Iterable[Any]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def state_value(partition: PartitionImage, controller_epoch: int) -> bytes:
    facts: dict[str, Any] = {
        "controller_epoch": controller_epoch,
        "leader": partition.leader,
        "version": 1,
        "leader_epoch": partition.leader_epoch,
        "isr": list(partition.isr),
    }
    # The fields above are Apache Kafka's; these are ours and left out if empty.
    if partition.leader_broker_epoch != UNKNOWN_BROKER_EPOCH:
        facts["leader_broker_epoch"] = partition.leader_broker_epoch
    if partition.elr:
        facts["elr"] = list(partition.elr)
    return dumps(facts)


_NO_REPLICAS: Final = Assignment(())


def read_state(path: str, value: bytes, version: int, assignment: Assignment = _NO_REPLICAS) -> PartitionImage:
    """The replicas of ``assignment`` are in the topic's node."""
    facts = loads(path, value)
    try:
        isr, elr = facts["isr"], facts.get("elr")
        return PartitionImage(
            facts["leader"],
            facts["leader_epoch"],
            assignment.replicas,
            tuple(isr),
            version,
            facts.get("leader_broker_epoch", UNKNOWN_BROKER_EPOCH),
            tuple(elr) if elr else (),
            assignment.adding,
            assignment.removing,
        )
    except (KeyError, TypeError) as error:
        raise DamagedFact(path, value) from error


def config_value(configs: Mapping[str, str]) -> bytes:
    return dumps({"version": 1, "config": dict(configs)})


def read_config(path: str, value: bytes) -> dict[str, str]:
    configs = loads(path, value).get("config")
    if not isinstance(configs, dict):
        raise DamagedFact(path, value)
    return {str(key): str(text) for key, text in configs.items()}


def broker_value(broker: BrokerImage, now_ms: int) -> bytes:
    """A broker's registration: Apache Kafka's fields, and our ``epoch``, ``directory_id`` and set flags."""
    facts: dict[str, Any] = {
        **_endpoints_value(broker.listeners),
        "jmx_port": -1,
        "features": {
            name: dict(zip(_RANGE_KEYS, levels, strict=True))
            for name, levels in {**broker.features, _TREE_FEATURE: broker.tree_formats}.items()
        },
        "host": broker.host,
        "timestamp": str(now_ms),
        "port": broker.port,
        "version": 5,
        "epoch": broker.epoch,
    }
    if broker.rack is not None:
        facts["rack"] = broker.rack
    if broker.directory_id:
        facts["directory_id"] = broker.directory_id
    if broker.freeze_timeout_ms:
        facts[_FREEZE_TIMEOUT] = broker.freeze_timeout_ms
    for key in _BROKER_FLAGS:
        if getattr(broker, key):
            facts[key] = True
    return dumps(facts)


_TREE_FEATURE: Final = "oncelog.tree"
_FREEZE_TIMEOUT: Final = "freeze_timeout_ms"
_RANGE_KEYS: Final = ("min_version", "max_version")
_BROKER_FLAGS: Final = ("fenced", "in_controlled_shutdown", "is_new_directory", "has_full_disk")


def read_broker(path: str, value: bytes, version: int) -> BrokerImage:
    facts = loads(path, value)
    try:
        broker_id = BrokerId(int(path.rpartition("/")[2]))
        endpoints = _read_endpoints(facts)
        only = Endpoint(_PLAINTEXT.value, _PLAINTEXT, str(facts["host"]), int(facts["port"]))
        return BrokerImage(
            broker_id,
            only.host,
            only.port,
            facts.get("rack"),
            int(facts.get("epoch", UNKNOWN_BROKER_EPOCH)),
            version,
            str(facts.get("directory_id", "")),
            fenced=facts.get("fenced") is True,
            in_controlled_shutdown=facts.get("in_controlled_shutdown") is True,
            is_new_directory=facts.get("is_new_directory") is True,
            has_full_disk=facts.get("has_full_disk") is True,
            endpoints=() if endpoints == (only,) else endpoints,
            tree_formats=_read_tree_formats(facts),
            features=_read_supported_features(facts),
            freeze_timeout_ms=int(facts.get(_FREEZE_TIMEOUT, 0)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedFact(path, value) from error


def _read_tree_formats(facts: Mapping[str, Any]) -> TreeFormats:
    formats = (facts.get("features") or {}).get(_TREE_FEATURE)
    return TreeFormats() if formats is None else TreeFormats(*(int(formats[key]) for key in _RANGE_KEYS))


def _read_supported_features(facts: Mapping[str, Any]) -> dict[str, FeatureRange]:
    return {
        str(name): FeatureRange(*(int(levels[key]) for key in _RANGE_KEYS))
        for name, levels in (facts.get("features") or {}).items()
        if name != _TREE_FEATURE
    }


def _endpoints_value(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    return {
        "listener_security_protocol_map": {endpoint.listener_name: endpoint.protocol.value for endpoint in endpoints},
        "endpoints": [str(endpoint) for endpoint in endpoints],
    }


def _read_endpoints(facts: Mapping[str, Any]) -> tuple[Endpoint, ...]:
    protocols = facts.get("listener_security_protocol_map") or {}
    endpoints = []
    for text in facts.get("endpoints") or ():
        # IPv6 hosts are in brackets.
        name, _, address = str(text).partition("://")
        host, _, port = address.rpartition(":")
        protocol = SecurityProtocol(protocols.get(name, name))
        endpoints.append(Endpoint(name, protocol, host.removeprefix("[").removesuffix("]"), int(port)))
    return tuple(endpoints)


def broker_record_value(record: BrokerRecord) -> bytes:
    facts: dict[str, Any] = {"version": 1, "directory_id": record.directory_id, "epoch": record.epoch}
    if record.sync_policy:
        facts["sync_policy"] = record.sync_policy
    if record.endpoints:
        facts.update(_endpoints_value(record.endpoints))
    if record.rack is not None:
        facts["rack"] = record.rack
    for key in _RECORD_FLAGS:
        if getattr(record, key):
            facts[key] = True
    return dumps(facts)


_RECORD_FLAGS: Final = ("fenced", "is_new_directory", "unregistered")


def read_broker_record(path: str, value: bytes, version: int) -> tuple[BrokerId, BrokerRecord]:
    facts = loads(path, value)
    try:
        record = BrokerRecord(
            str(facts["directory_id"]),
            int(facts["epoch"]),
            version,
            fenced=facts.get("fenced") is True,
            is_new_directory=facts.get("is_new_directory") is True,
            sync_policy=str(facts.get("sync_policy", "")),
            unregistered=facts.get("unregistered") is True,
            rack=facts.get("rack"),
            endpoints=_read_endpoints(facts),
        )
        return BrokerId(int(path.rpartition("/")[2])), record
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedFact(path, value) from error


def suspicion_value(epoch: int, since_ms: int) -> bytes:
    return dumps({"version": 1, "epoch": epoch, "since_ms": since_ms})


def suspicion_key(path: str) -> tuple[BrokerId, BrokerId]:
    """The suspected broker and its observer."""
    suspect, _, observer = path.rpartition("/")[2].partition(".")
    try:
        return BrokerId(int(suspect)), BrokerId(int(observer))
    except ValueError as error:
        raise DamagedFact(path, b"") from error


def read_suspicion(path: str, value: bytes, version: int) -> Suspicion:
    try:
        facts = loads(path, value)
        return Suspicion(int(facts["epoch"]), version, int(facts.get("since_ms", UNKNOWN_MS)))
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFact(path, value) from error


def node_name(name: str, safe: str = "") -> str:
    """Percent-encodes all but letters, digits, ``.-_~`` and ``safe``."""
    # ZooKeeper treats "." and ".." as path steps, and quote leaves them unencoded.
    return _DOTS.get(name) or quote(name, safe=safe)


_DOTS: Final = {".": "%2E", "..": "%2E%2E"}


def entity_name(entity: str) -> str:
    """The name of a config node for a broker, group or subscription; ``""`` (all) is ``<default>``."""
    # Trees up to format 2 may have "." and ".." unencoded; ConfigImage.node has the actual name.
    return node_name(entity) if entity else DEFAULT_BROKER


def entity_of(name: str) -> str:
    """The inverse of :func:`entity_name`, also for names from before it encoded dots."""
    return "" if name == DEFAULT_BROKER else unquote(name)


def features_value(features: Mapping[str, int]) -> bytes:
    return dumps({"features": dict(features), "version": 2, "status": 1})


def read_features(path: str, value: bytes) -> dict[str, int]:
    features = loads(path, value).get("features")
    if not isinstance(features, dict):
        raise DamagedFact(path, value)
    return {str(name): int(level) for name, level in features.items()}


def controller_value(broker_id: BrokerId, now_ms: int) -> bytes:
    return dumps({"version": 2, "brokerid": broker_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def read_controller(path: str, value: bytes) -> BrokerId:
    try:
        return BrokerId(int(loads(path, value)["brokerid"]))
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFact(path, value) from error


def cluster_id_value(cluster_id: str) -> bytes:
    return dumps({"version": "1", "id": cluster_id})


def read_cluster_id(path: str, value: bytes) -> str:
    cluster_id = loads(path, value).get("id")
    if not isinstance(cluster_id, str):
        raise DamagedFact(path, value)
    return cluster_id


def read_number(path: str, value: bytes) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise DamagedFact(path, value) from error


def producer_id_block_value(broker_id: BrokerId, first: int, last: int) -> bytes:
    """The newest block of producer ids; numbers are text, as in Apache Kafka."""
    return dumps({"version": 1, "broker": broker_id, "block_start": str(first), "block_end": str(last)})


def read_producer_id_block(path: str, value: bytes) -> tuple[int, int]:
    """First and last id of the newest block."""
    facts = loads(path, value)
    try:
        return int(facts["block_start"]), int(facts["block_end"])
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFact(path, value) from error

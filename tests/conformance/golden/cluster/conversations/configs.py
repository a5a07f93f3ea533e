"""Configurations of brokers and topics, asked and changed at the broker that is meant and at others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oncelog.wire.messages.alter_configs import AlterableConfig as ReplacedConfig
from oncelog.wire.messages.alter_configs import AlterConfigsRequest
from oncelog.wire.messages.alter_configs import AlterConfigsResource as ReplacedResource
from oncelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from oncelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.conformance.golden.cluster.conversation import Conversation
from tests.peers.clients.sweep.wire import versions

_TOPIC, _BROKER, _LOGGER, _GROUP = 2, 4, 8, 32
_KEY: Final = "log.cleaner.threads"
_SET, _DELETE = 0, 1
_BROKERS: Final = ("1", "2", "3", "9", "", "-1", "x")


def _described(kind: int, name: str, *keys: str) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    return DescribeConfigsRequest(resources=[resource], include_synonyms=True)


def _changed(
    kind: int, name: str, key: str, value: str | None, *, validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    config = AlterableConfig(name=key, value=value, config_operation=_DELETE if value is None else _SET)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)


def _replaced(kind: int, name: str, key: str, value: str) -> AlterConfigsRequest:
    resource = ReplacedResource(resource_type=kind, resource_name=name, configs=[ReplacedConfig(name=key, value=value)])
    return AlterConfigsRequest(resources=[resource], validate_only=True)


def _configs(talk: Conversation) -> None:
    talk.topic("k-topic", {0: (1, 2)})
    for version in versions(DescribeConfigsRequest):
        for name in _BROKERS:
            talk.ask_each(_described(_BROKER, name, _KEY, "broker.rack"), version)
        talk.ask_each(_described(_TOPIC, "k-topic", "retention.ms", "min.insync.replicas"), version)
        talk.ask_each(_described(_TOPIC, "k-nowhere", "retention.ms"), version)
        talk.ask_each(_described(_LOGGER, "9"), version)
    for version in versions(IncrementalAlterConfigsRequest):
        for name in _BROKERS:
            talk.ask_each(_changed(_BROKER, name, _KEY, "2", validate_only=True), version)
            talk.ask_each(_changed(_BROKER, name, "broker.rack", "r", validate_only=True), version)
        talk.ask_each(_changed(_LOGGER, "9", "root", "INFO"), version)
    for version in versions(AlterConfigsRequest):
        for name in _BROKERS:
            talk.ask_each(_replaced(_BROKER, name, _KEY, "2"), version)
        talk.ask_each(_replaced(_TOPIC, "k-topic", "retention.ms", "1000"), version)


def _changes(talk: Conversation) -> None:
    """Changes that are made are told by every broker."""
    talk.topic("k-topic", {0: (1, 2)})
    for kind, name, key, asked_of in (
        (_TOPIC, "k-topic", "retention.ms", 3),
        (_BROKER, "2", _KEY, 2),
        (_BROKER, "", "log.retention.ms", 1),
    ):
        talk.ask(asked_of, _changed(kind, name, key, "2"), 1)
        _until(talk, kind, name, key, "2")
        for broker_id in talk.running:
            if kind != _BROKER or name in ("", str(broker_id)):
                talk.ask(broker_id, _described(kind, name, key), 4)
            talk.ask(broker_id, _described(_BROKER, str(broker_id), key if kind == _BROKER else _KEY), 4)
        talk.ask(asked_of, _changed(kind, name, key, None), 1)


def _until(talk: Conversation, kind: int, name: str, key: str, value: str) -> None:
    for broker_id in talk.running:
        if kind == _BROKER and name not in ("", str(broker_id)):
            continue
        talk.until(
            broker_id,
            _described(kind, name, key),
            4,
            lambda answer: answer.results[0].configs and answer.results[0].configs[0].value == value,
            f"{key}={value}",
        )
    talk.settle()


def _log_dirs(talk: Conversation) -> None:
    """A replica is told to move to a directory that nobody has, by brokers with the replica and without."""
    talk.topic("k-dirs", {0: (1, 2)})
    for version in versions(AlterReplicaLogDirsRequest):
        for topic, partition in (("k-dirs", 0), ("k-dirs", 7), ("k-nowhere", 0)):
            moved = [AlterReplicaLogDirTopic(name=topic, partitions=[partition])]
            talk.ask_each(
                AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/nowhere/at/all", topics=moved)]), version
            )


CONVERSATIONS: Final[dict[str, Callable[[Conversation], None]]] = {
    "configs": _configs,
    "config-changes": _changes,
    "alter-log-dirs": _log_dirs,
}

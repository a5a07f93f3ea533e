"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

from typing import Final

from oncelog.wire.messages import alter_configs, incremental_alter_configs
from oncelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.peers.clients.sweep.wire import Sweep, Wire, versions

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32
SET, DELETE, APPEND, SUBTRACT = range(4)
GROUP_KINDS: Final = ("consumer", "share", "streams")


def _describe(wire: Wire, kind: int, name: str, version: int, keys: list[str] | None = None, **fields: bool) -> None:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    wire.call(DescribeConfigsRequest(resources=[resource], **fields), version)


def _describe_configs(wire: Wire) -> None:
    wire.topic("sc-plain", retention_ms="5000")
    for version in versions(DescribeConfigsRequest):
        _describe(wire, TOPIC, "sc-plain", version)
        _describe(wire, TOPIC, "sc-plain", version, include_synonyms=True)
        _describe(wire, TOPIC, "sc-plain", version, ["retention.ms", "cleanup.policy", "no.such.key"])
        _describe(wire, TOPIC, "sc-plain", version, [])
        _describe(wire, TOPIC, "sc-nowhere", version)
        _describe(wire, TOPIC, "with space", version)
        _describe(wire, TOPIC, "", version)
        for key in ("log.retention.ms", "num.partitions", "offsets.topic.num.partitions", "message.max.bytes"):
            _describe(wire, BROKER, "1", version, [key], include_synonyms=True)
        _describe(wire, BROKER, "", version)
        _describe(wire, BROKER, "9", version)
        _describe(wire, BROKER, "one", version)
        _describe(wire, 99, "what", version)
        _describe(wire, 0, "what", version)
    _describe(wire, TOPIC, "sc-plain", 4, include_documentation=True)


def _alter_configs(wire: Wire) -> None:
    wire.topic("sc-alter", retention_ms="5000")

    def alter(kind: int, name: str, version: int, *, check: bool = False, **configs: str | None) -> None:
        entries = [
            alter_configs.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ]
        resource = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
        wire.call(alter_configs.AlterConfigsRequest(resources=[resource], validate_only=check), version)

    for version in versions(alter_configs.AlterConfigsRequest):
        alter(TOPIC, "sc-alter", version, segment_bytes="2000000")
        alter(TOPIC, "sc-alter", version, retention_ms="7000")
        alter(TOPIC, "sc-alter", version, check=True, cleanup_policy="compact")
        alter(TOPIC, "sc-alter", version, retention_ms="x")
        alter(TOPIC, "sc-alter", version, no_such_key="x")
        alter(TOPIC, "sc-alter", version, retention_ms=None)
        alter(TOPIC, "sc-nowhere", version, retention_ms="1")
        alter(TOPIC, "", version, retention_ms="1")
        alter(BROKER, "9", version, log_retention_ms="1")
        alter(BROKER, "one", version, log_retention_ms="1")
        alter(99, "what", version)
        _describe(wire, TOPIC, "sc-alter", 4, ["retention.ms", "segment.bytes", "cleanup.policy"])
        alter(TOPIC, "sc-alter", version)
        _describe(wire, TOPIC, "sc-alter", 4, ["retention.ms", "segment.bytes", "cleanup.policy"])


def _incremental(wire: Wire) -> None:
    wire.topic("sc-steps", retention_ms="5000")

    def alter(
        version: int,
        *changes: tuple[str, int, str | None],
        kind: int = TOPIC,
        name: str = "sc-steps",
        check: bool = False,
    ) -> None:
        entries = [
            incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ]
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=entries
        )
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=check)
        wire.call(request, version)

    for version in versions(incremental_alter_configs.IncrementalAlterConfigsRequest):
        alter(version, ("segment.bytes", SET, "2000000"), ("retention.ms", DELETE, None))
        alter(version, ("cleanup.policy", APPEND, "compact"))
        alter(version, ("cleanup.policy", APPEND, "compact"))
        alter(version, ("cleanup.policy", SUBTRACT, "delete"))
        alter(version, ("retention.ms", APPEND, "1"))
        alter(version, ("retention.ms", 9, "1"))
        alter(version, ("retention.ms", SET, "1"), ("retention.ms", DELETE, None))
        alter(version, ("retention.ms", SET, "x"))
        alter(version, ("retention.ms", SET, None))
        alter(version, ("no.such.key", SET, "1"))
        alter(version, ("no.such.key", DELETE, None))
        alter(version, ("retention.ms", SET, "9"), check=True)
        alter(version, ("retention.ms", SET, "9"), name="sc-nowhere")
        alter(version, ("retention.ms", SET, "9"), name="")
        alter(version, ("log.retention.ms", SET, "9"), kind=BROKER, name="9")
        alter(version, ("node.id", SET, "9"), kind=BROKER, name="1")
        alter(version, ("a", SET, "9"), kind=99, name="what")
        alter(version)
        _describe(wire, TOPIC, "sc-steps", 4, ["retention.ms", "segment.bytes", "cleanup.policy"])
        alter(version, ("message.max.bytes", SET, "900000"), kind=BROKER, name="")
        _describe(wire, BROKER, "", 4)
        _describe(wire, BROKER, "1", 4, ["message.max.bytes"], include_synonyms=True)
        alter(version, ("message.max.bytes", DELETE, None), kind=BROKER, name="")


def _set(wire: Wire, kind: int, name: str, check: bool = False, **configs: str | None) -> None:
    """Set keys, ``_`` for ``.``; None: remove."""
    entries = [
        incremental_alter_configs.AlterableConfig(
            name=key.replace("_", "."), config_operation=DELETE if value is None else SET, value=value
        )
        for key, value in configs.items()
    ]
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
    wire.call(incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=check), 1)


def _broker_configs(wire: Wire) -> None:
    """Settings of all brokers and of one: each is described as it was set, and takes its turn."""
    wire.topic("sc-isr")
    values = {
        "message.max.bytes": (" 900000", "800000", "x"),
        "log.cleanup.policy": ("compact, delete", "compact", "x"),
        "log.cleaner.min.cleanable.ratio": ("0.50", "0.1", "7"),
        "log.cleaner.io.max.bytes.per.second": ("1e8", "12345678", "x"),
        "log.preallocate": ("FALSE", "true", "x"),
        "leader.replication.throttled.rate": ("+7", "5", "-1"),
        "follower.replication.throttled.rate": ("7", "5", "x"),
        "replica.alter.log.dirs.io.max.bytes.per.second": ("7", "5", "-1"),
        "min.insync.replicas": ("2", "1", "0"),
        "no.such.key": ("7", "5", ""),
    }
    for key, (of_all, own, wrong) in values.items():
        name = key.replace(".", "_")
        for brokers, value in (("", of_all), ("1", own), ("", wrong), ("1", None), ("", None)):
            _set(wire, BROKER, brokers, **{name: value})
            for described in ("", "1"):
                _describe(wire, BROKER, described, 4, [key], include_synonyms=True, include_documentation=not value)
        if key == "min.insync.replicas":
            _describe(wire, TOPIC, "sc-isr", 4, [key], include_synonyms=True)
    _describe(wire, BROKER, "", 4, include_synonyms=True)


def _group_configs(wire: Wire) -> None:
    """Every key of a group at and beyond its limits, then what is set."""
    numbers = {
        **dict.fromkeys((f"{kind}.session.timeout.ms" for kind in GROUP_KINDS), (0, 1, 44999, 45000, 60000, 60001)),
        **dict.fromkeys((f"{kind}.heartbeat.interval.ms" for kind in GROUP_KINDS), (0, 1, 4999, 5000, 15000, 15001)),
        **dict.fromkeys((f"{kind}.assignment.interval.ms" for kind in GROUP_KINDS), (-1, 0, 15000, 15001)),
        "share.record.lock.duration.ms": (999, 1000, 14999, 15000, 60000, 60001, 3_600_001),
        "share.delivery.count.limit": (1, 2, 10, 11, 26),
        "share.partition.max.record.locks": (99, 100, 4000, 4001, 10_001),
        "streams.num.standby.replicas": (-1, 0, 2, 3),
        "streams.initial.rebalance.delay.ms": (-1, 0, 2**31 - 1, 2**31),
    }
    words = {
        "share.auto.offset.reset": [
            "earliest",
            "latest",
            "none",
            "by_duration:PT1H",
            "by_duration:-PT1H",
            "by_duration:P",
        ],
        "share.isolation.level": ["read_committed", "read_uncommitted", "READ_COMMITTED", ""],
        "share.renew.acknowledge.enable": ["TRUE", "false", "yes"],
        "share.no.such.key": ["1"],
    }
    for key, values in {**numbers, **words}.items():
        for value in (*values, "x"):
            _set(wire, GROUP, "sc-group", check=True, **{key.replace(".", "_"): str(value)})
    for version in versions(DescribeConfigsRequest):
        _describe(wire, GROUP, "sc-group", version, include_synonyms=True)
        _describe(wire, CLIENT_METRICS, "sc-metrics", version, include_synonyms=True)
    _set(wire, GROUP, "sc-group", share_auto_offset_reset=" earliest ", share_session_timeout_ms="50000")
    _set(wire, GROUP, "sc-group", streams_num_standby_replicas="1", streams_session_timeout_ms="44999")
    _describe(wire, GROUP, "sc-group", 4, include_synonyms=True, include_documentation=True)
    _set(wire, GROUP, "", streams_num_standby_replicas="1")
    wire.call(ListConfigResourcesRequest(resource_types=[GROUP]), 1)


def _documentation(wire: Wire) -> None:
    """Every text: `tests.conformance.test_config_keys` reads the answers."""
    wire.topic("sc-documented")
    for kind, name in ((TOPIC, "sc-documented"), (BROKER, "1"), (CLIENT_METRICS, "sc-metrics"), (GROUP, "sc-group")):
        _describe(wire, kind, name, 4, include_documentation=True)


def _list_resources(wire: Wire) -> None:
    wire.topic("sc-listed")
    for version in versions(ListConfigResourcesRequest):
        for kinds in ([], [TOPIC], [BROKER], [BROKER_LOGGER], [CLIENT_METRICS], [GROUP], [99], [TOPIC, BROKER]):
            wire.call(ListConfigResourcesRequest(resource_types=kinds), version)


SWEEPS: Final[dict[str, Sweep]] = {
    "describe-configs": _describe_configs,
    "alter-configs": _alter_configs,
    "incremental-alter-configs": _incremental,
    "broker-configs": _broker_configs,
    "group-configs": _group_configs,
    "config-documentation": _documentation,
    "list-config-resources": _list_resources,
}

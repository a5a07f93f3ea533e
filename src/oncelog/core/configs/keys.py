"""All keys of brokers, topics, groups and client metrics subscriptions.

Types, defaults, limits, update modes and synonyms are Apache Kafka's (``kafka_keys``, generated from its
``ConfigDef``). Written by hand are only our own keys (``own_keys``) and, below, the deviations, each with its reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from oncelog.core.configs import kafka_keys
from oncelog.core.configs.kinds import ConfigError, ConfigKey, Update, Value
from oncelog.core.configs.limits import at_least, limits_by_host, non_empty_list, one_of
from oncelog.core.configs.own_keys import OWN_KEYS

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""``replica.selector.class``: consumers read from a replica in their rack (``core.replicas.selector``)."""
LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"
"""``replica.selector.class``: the same as the default."""
_STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_OLD_AUTHORIZERS: Final = ("kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer")
ASSIGNORS: Final = ("uniform", "range")
"""``group.consumer.assignors``: the names of consumer groups' assignors (KIP-848)."""
ASSIGNOR_CLASSES: Final = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
"""Apache Kafka's classes of the same assignors, which a configuration may name instead."""
SHARE_ASSIGNORS: Final = ("simple", "org.apache.kafka.coordinator.group.assignor.SimpleAssignor")
"""``group.share.assignors``: the assignor of share groups (KIP-932), by its name or Apache Kafka's class."""
_PRINCIPAL_BUILDER: Final = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


def _authorizer_class(key: str, value: Value) -> None:
    if value not in ("", _STANDARD_AUTHORIZER, *_OLD_AUTHORIZERS):
        raise ConfigError.of_value(
            key,
            value,
            f"oncelog loads no Java classes; set {_STANDARD_AUTHORIZER} to use access control lists, "
            "or leave it out for no authorization",
        )


def _principal_builder_class(key: str, value: Value) -> None:
    if value != _PRINCIPAL_BUILDER:
        raise ConfigError(
            f"{key}={value} is a Java class, and oncelog loads none; remove the key to use {_PRINCIPAL_BUILDER}",
            key=key,
            value=value,
        )


def _assignors(key: str, value: Value) -> None:
    non_empty_list()(key, value)
    names = value if isinstance(value, tuple) else ()
    unknown = [name for name in names if name not in (*ASSIGNORS, *ASSIGNOR_CLASSES)]
    if unknown:
        raise ConfigError.of_value(key, unknown[0], "oncelog loads no Java classes; set uniform, range or both")


def _share_assignor(key: str, value: Value) -> None:
    non_empty_list()(key, value)
    names = value if isinstance(value, tuple) else ()
    unknown = [name for name in names if name not in SHARE_ASSIGNORS]
    if unknown:
        raise ConfigError.of_value(key, unknown[0], "oncelog loads no Java classes; set simple")
    if len(names) > 1:
        raise ConfigError(f"{key} must contain exactly one assignor, but found {len(names)}")


def _with_changes(keys: Iterable[ConfigKey], changes: Mapping[str, Mapping[str, object]]) -> dict[str, ConfigKey]:
    table = {key.name: key for key in keys}
    return table | {name: table[name]._replace(**fields) for name, fields in changes.items()}  # type: ignore[arg-type]


BROKER_KEYS: Final = _with_changes(
    (*kafka_keys.BROKER, *kafka_keys.THROTTLES, *OWN_KEYS),
    {
        # A broker can start without a file.
        "node.id": {"default": "1"},
        # Sockets are only opened at start.
        "listeners": {"update": Update.READ_ONLY},
        # No Java class is loaded. A custom authorizer must not silently become none, and a custom builder could name
        # other principals.
        "authorizer.class.name": {"check": _authorizer_class},
        "principal.builder.class": {"check": _principal_builder_class},
        "group.consumer.assignors": {"check": _assignors},
        "group.share.assignors": {"check": _share_assignor},
        "replica.selector.class": {"check": one_of(RACK_AWARE_SELECTOR, LEADER_SELECTOR)},
        # Apache Kafka fails later, when it reads the pairs.
        "max.connections.per.ip.overrides": {"check": limits_by_host},
        # No login fits into less than one byte.
        "sasl.server.max.receive.size": {"check": at_least(1)},
        # kafka-reassign-partitions sets and removes them; Apache Kafka lists them only while they are set.
        **{key.name: {"default": None, "internal": True} for key in kafka_keys.THROTTLES},
    },
)
TOPIC_KEYS: Final = {key.name: key for key in kafka_keys.TOPIC}
GROUP_KEYS: Final = {key.name: key for key in kafka_keys.GROUP}
CLIENT_METRICS_KEYS: Final = {key.name: key for key in kafka_keys.CLIENT_METRICS}

_WITHOUT_EFFECT: Final = {
    "Metadata is in a tree that all brokers share: there is no controller quorum.": (
        "broker.heartbeat. broker.session. controller.performance. controller.quorum. controller.socket.timeout.ms "
        "early.start.listeners initial.broker.registration.timeout.ms internal.metadata. metadata. process.roles "
        "sasl.mechanism.controller.protocol server.max.startup.time.ms unclean.leader.election.interval.ms unstable."
    ),
    "One loop serves all connections, and any worker thread does any work.": (
        "background.threads num.io.threads num.network.threads num.recovery.threads.per.data.dir "
        "num.replica.alter.log.dirs.threads num.replica.fetchers log.cleaner.threads queued.max.requests "
        "queued.max.request.bytes delete.records.purgatory.purge.interval.requests "
        "fetch.purgatory.purge.interval.requests producer.purgatory.purge.interval.requests "
        "share.fetch.purgatory.purge.interval.requests"
    ),
    "The system sizes the buffers of sockets; logs and coordinators allocate none in advance.": (
        "socket.receive.buffer.bytes socket.send.buffer.bytes replica.socket.receive.buffer.bytes log.preallocate "
        "preallocate log.cleaner.io. offsets.load.buffer.size share.coordinator.load.buffer.size "
        "transaction.state.log.load.buffer.size"
    ),
    "Checkpoints, first looks at logs and internal topics have their own times and formats.": (
        "replica.high.watermark.checkpoint.interval.ms log.flush.start.offset.checkpoint.interval.ms "
        "log.initial.task.delay.ms offsets.topic.compression.codec share.coordinator.state.topic.compression.codec"
    ),
    "A broker has one data directory: nothing moves between several.": (
        "alter. cordoned.log.dirs log.dir.failure.timeout.ms replica.alter.log.dirs.io.max.bytes.per.second"
    ),
    "There is no tiered storage.": (
        "follower.fetch.last.tiered.offset.enable local.retention. log.local.retention. log.remote. remote.copy. "
        "remote.fetch. remote.list. remote.log."
    ),
    "There are no streams groups.": "group.streams. streams.",
    "Share groups have one assignor.": "group.share.assignors",
    "The coordinator itself chooses the work that leaves its loop.": (
        "consumer.assignor.offload.enable group.consumer.assignor.offload.enable "
        "share.assignor.offload.enable group.share.assignor.offload.enable"
    ),
    "One loop serves all groups, and each decision is appended at once.": (
        "group.coordinator.append.linger.ms group.coordinator.background.threads "
        "group.coordinator.cached.buffer.max.bytes group.coordinator.threads share.coordinator.append.linger.ms "
        "share.coordinator.cached.buffer.max.bytes share.coordinator.threads"
    ),
    "A request waits at the transaction's coordinator instead of coming again.": (
        "add.partitions.to.txn.retry.backoff.ms"
    ),
    "No Java class is loaded, and TLS is OpenSSL's.": (
        "client.quota.callback.class create.topic.policy.class.name group.share.dlq.manager.class.name "
        "group.share.persister.class.name metric.reporters principal.builder.class "
        "sasl.client.callback.handler.class security.providers ssl.allow.dn.changes ssl.allow.san.changes "
        "ssl.engine.factory.class ssl.keymanager.algorithm ssl.protocol ssl.provider ssl.secure.random.implementation "
        "ssl.trustmanager.algorithm"
    ),
    "There are no Kerberos and no delegation tokens, and brokers get no tokens to log in to each other.": (
        "delegation.token. sasl.kerberos. sasl.login. sasl.oauthbearer.assertion. sasl.oauthbearer.client. "
        "sasl.oauthbearer.jwt. sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url"
    ),
    "Metrics are Prometheus's, and clients push none.": (
        "interval.ms kafka.metrics. match metrics metrics. telemetry.max.bytes"
    ),
}
"""Keys, and key prefixes up to a dot, by the reason why they have no effect."""
NAMES_WITHOUT_EFFECT: Final = frozenset(" ".join(_WITHOUT_EFFECT.values()).split())
_PREFIXES_WITHOUT_EFFECT: Final = tuple(name for name in NAMES_WITHOUT_EFFECT if name.endswith("."))
NO_EFFECT: Final = "(It has no effect in oncelog.)"
DOCUMENTATION: Final = {
    "controller.listener.names": "Listeners of Apache Kafka's controllers; the broker has none, and leaves them out.",
    "flush.messages": "Records after which the log is flushed to disk, whatever log.sync.policy says.",
    "flush.ms": "Time after which appended records are flushed to disk, whatever log.sync.policy says.",
    "log.cleaner.dedupe.buffer.size": "Memory for the keys seen in one compaction.",
    "log.dir": "The data directory; serve --data-dir sets it.",
    "log.dirs": "The data directory, takes precedence over log.dir; only one is supported.",
    "log.flush.interval.messages": "Records after which a log is flushed to disk, whatever log.sync.policy says.",
    "max.connections": "Maximum number of connections of the broker; more are rejected.",
    "max.incremental.fetch.session.cache.slots": "Incremental fetch sessions kept.",
    "node.id": "The broker's id in the cluster.",
    "offsets.topic.replication.factor": "Replicas of __consumer_offsets; not set: as many as there are brokers, at "
    "most 3.",
    "remote.storage.enable": "Tiered storage for the topic; it is not supported, so true is rejected.",
    "request.timeout.ms": "How long a broker waits for another broker's response.",
    "segment.index.bytes": "The largest size of a segment's indexes; a full index begins a new segment.",
    "share.coordinator.state.topic.min.isr": "In-sync replicas __share_group_state needs; not set: 1 when one broker "
    "is alive, else 2.",
    "share.coordinator.state.topic.replication.factor": "Replicas of __share_group_state; not set: as many as there "
    "are brokers, at most 3.",
    "socket.listen.backlog.size": "Connections that wait to be accepted, on each listener; 1024 where it is not set.",
    "socket.request.max.bytes": "The largest Produce request; other requests are limited by oncelog.request.max.bytes.",
    "transaction.state.log.min.isr": "In-sync replicas __transaction_state needs; not set: 1 when one broker is alive, "
    "else 2.",
    "transaction.state.log.replication.factor": "Replicas of __transaction_state; not set: as many as there are "
    "brokers, at most 3.",
}
"""The effect of keys that differ from Apache Kafka."""

LISTENER_PREFIX: Final = "listener.name."
"""Keys with this prefix and a lower-case listener name apply to that listener only."""
OAUTHBEARER_PREFIX: Final = "oauthbearer."
"""The prefix of a listener's key for tokens only; any key may have it, including the issuer's."""
MECHANISM_KEYS: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
"""Keys that a listener can set per SASL mechanism."""
KEYS_OF_ALL_BROKERS: Final = ("max.connections", "max.connection.creation.rate", "num.network.threads")
"""Listener keys that can be set dynamically for all brokers; all others are set per broker."""


def has_no_effect(name: str) -> bool:
    """True for a key that is accepted, checked and described only for Apache Kafka's files and tools."""
    return name in NAMES_WITHOUT_EFFECT or name.startswith(_PREFIXES_WITHOUT_EFFECT)


def documentation_of(key: ConfigKey, texts: Mapping[str, str]) -> str | None:
    """The documentation of a key, or None; ``texts`` is Apache Kafka's for this resource type."""
    text = key.documentation or DOCUMENTATION.get(key.name)
    if text is not None:
        return text
    text = texts.get(key.name)
    return f"{text} {NO_EFFECT}" if text is not None and has_no_effect(key.name) else text


def listener_prefix(listener_name: str) -> str:
    return f"{LISTENER_PREFIX}{listener_name.lower()}."


def broker_key(name: str) -> ConfigKey | None:
    """The key that a name sets; None for an unknown name.

    ``listener.name.NAME.KEY`` sets KEY for one listener, and ``listener.name.NAME.MECHANISM.KEY`` for one SASL
    mechanism there, if KEY is one of ``MECHANISM_KEYS``.
    """
    key = BROKER_KEYS.get(name)
    if key is not None or not name.startswith(LISTENER_PREFIX):
        return key
    base = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
    by_mechanism = next((mechanism_key for mechanism_key in MECHANISM_KEYS if base.endswith(f".{mechanism_key}")), base)
    by_mechanism = base.removeprefix(OAUTHBEARER_PREFIX) if base.startswith(OAUTHBEARER_PREFIX) else by_mechanism
    return BROKER_KEYS.get(by_mechanism)


def synonym_names(name: str) -> list[str]:
    """A broker key and its synonyms, in look-up order."""
    names = [name]
    key = broker_key(name)
    if key is not None and key.name != name:
        names.append(key.name)
    while key is not None and key.synonym is not None:
        names.append(key.synonym)
        key = BROKER_KEYS.get(key.synonym)
    return names

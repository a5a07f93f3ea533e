"""Resources with configs: their names, nodes and permitted keys.

Messages are those of Apache Kafka 4.4, because its tools show them to people.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, TopicName
from oncelog.base.tree import Create, Operation, Set
from oncelog.base.units import HOUR_MS
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.combinations import GROUP_BOUNDS, GROUP_KINDS, check_change, check_combinations
from oncelog.core.configs.keys import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    KEYS_OF_ALL_BROKERS,
    LISTENER_PREFIX,
    TOPIC_KEYS,
    broker_key,
)
from oncelog.core.configs.kinds import ConfigError, ConfigKey, ConfigType, Update
from oncelog.core.configs.limits import client_matches
from oncelog.core.configs.topic import check_topic_configs
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ABSENT, ClusterImage
from oncelog.core.controller.outcomes import Refused
from oncelog.core.controller.topic_names import name_refusal


class ConfigResourceType(IntEnum):
    """Resource types with configs, with the codes of the protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(NamedTuple):
    """``type`` is the code in the request, valid or not."""

    type: int
    name: str


class Current(NamedTuple):
    path: str
    configs: Mapping[str, str]
    version: int


_KEYS: Final[dict[int, Mapping[str, ConfigKey]]] = {
    ConfigResourceType.TOPIC: TOPIC_KEYS,
    ConfigResourceType.BROKER: BROKER_KEYS,
    ConfigResourceType.GROUP: GROUP_KEYS,
    ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS_KEYS,
}


ALL_BROKERS: Final = Resource(ConfigResourceType.BROKER, "")
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
_DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
_PUSH_INTERVAL: Final = "interval.ms"
_CLIENT_MATCH: Final = "match"


def current(image: ClusterImage, resource: Resource) -> Current:
    """The present configs of ``resource``, empty if it does not exist."""
    if resource.type == ConfigResourceType.TOPIC:
        name = TopicName(resource.name)
        topic = image.topics.get(name)
        path = layout.topic_config_path(name)
        return Current(path, {}, ABSENT) if topic is None else Current(path, topic.configs, topic.config_version)
    entities, parent = {
        ConfigResourceType.BROKER: (image.broker_configs, layout.BROKER_CONFIGS),
        ConfigResourceType.GROUP: (image.group_configs, layout.GROUP_CONFIGS),
        ConfigResourceType.CLIENT_METRICS: (image.client_metrics_configs, layout.CLIENT_METRICS_CONFIGS),
    }[ConfigResourceType(resource.type)]
    entity = entities.get(resource.name)
    if entity is None:
        return Current(f"{parent}/{layout.entity_name(resource.name)}", {}, ABSENT)
    return Current(f"{parent}/{entity.node}", entity.configs, entity.version)


def write_configs(now: Current, configs: Mapping[str, str]) -> Operation:
    value = layout.config_value(configs)
    return Create(now.path, value) if now.version == ABSENT else Set(now.path, value, now.version)


def check_resource(resource: Resource, broker_id: BrokerId) -> None:
    """Raise Refused unless this broker may change configs of the resource."""
    if resource.type == ConfigResourceType.BROKER and resource.name:
        check_broker_name(resource.name, broker_id, "Node id must be an integer, but it is: ", ", but received ")
    if resource.type not in _KEYS:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.type}")


def check_broker_name(
    name: str, broker_id: BrokerId, not_a_number: str, but: str, start: str = "Unexpected broker id, expected"
) -> None:
    """Raise Refused unless ``name`` is this broker's id. Apache Kafka's messages differ by request."""
    # int() would also accept underscores and other scripts' digits.
    digits = name[1:] if name[:1] in ("-", "+") else name
    if not (digits.isascii() and digits.isdigit() and len(digits) < 11):
        raise Refused(ErrorCode.INVALID_REQUEST, not_a_number + name)
    if int(name) != broker_id:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{start} {broker_id}{but}{name}")


def is_list(resource: Resource, key: str) -> bool:
    """True if the key supports append and subtract. Raises Refused for an unknown broker key."""
    config_key = broker_key(key) if resource.type == ConfigResourceType.BROKER else _KEYS[resource.type].get(key)
    if config_key is None and resource.type == ConfigResourceType.BROKER:
        raise Refused(ErrorCode.INVALID_CONFIG, f"Unknown config name: {key}")
    return config_key is not None and config_key.type is ConfigType.LIST


def default_text(resource: Resource, key: str) -> str:
    config_key = broker_key(key) if resource.type == ConfigResourceType.BROKER else _KEYS[resource.type].get(key)
    return (config_key.default if config_key is not None else None) or ""


def check_configs(
    image: ClusterImage, config: BrokerConfig, resource: Resource, configs: Mapping[str, str], broker_id: BrokerId
) -> None:
    """Raise Refused unless ``resource`` may have exactly ``configs``."""
    if resource.type == ConfigResourceType.TOPIC:
        _check_topic(image, config, resource.name, configs)
    elif resource.type == ConfigResourceType.BROKER:
        _check_broker(image, config, resource.name, configs, broker_id)
    elif resource.type == ConfigResourceType.GROUP:
        _check_group(config, resource.name, configs)
    else:
        _check_client_metrics(resource.name, configs)


def _check_topic(image: ClusterImage, config: BrokerConfig, name: str, configs: Mapping[str, str]) -> None:
    if not name:
        raise Refused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    refusal = name_refusal(name)
    if refusal is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, refusal)
    try:
        check_topic_configs(config, configs)
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from error
    if TopicName(name) not in image.topics:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _check_broker(
    image: ClusterImage, config: BrokerConfig, name: str, configs: Mapping[str, str], broker_id: BrokerId
) -> None:
    broker_keys = [key for key in configs if key in BROKER_KEYS]
    _refuse_any(
        "Cannot update these configs dynamically",
        [key for key in broker_keys if BROKER_KEYS[key].update is Update.READ_ONLY],
    )
    per_broker = [key for key in broker_keys if BROKER_KEYS[key].update is Update.PER_BROKER]
    _refuse_any(
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        [key for key in per_broker if key.startswith("ssl.")],
    )
    _check_keys_of_listeners(config, configs)
    if not name:
        of_listeners = [key for key in configs if _base_of(key) not in (None, *KEYS_OF_ALL_BROKERS)]
        _refuse_any(
            "Cannot update these configs at default cluster level, broker id must be specified",
            [*per_broker, *of_listeners],
        )
    # Validated as the broker would have it: its static values, and the other dynamic layer unchanged.
    default, own = image.dynamic_broker_configs(broker_id)
    try:
        changed = config.with_dynamic(*((default, configs) if name else (configs, own)))
        check_combinations(changed)
        check_change(config, changed)
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from error


def _base_of(key: str) -> str | None:
    """The key that a listener's own key overrides, or None."""
    config_key = broker_key(key)
    return None if config_key is None or config_key.name == key else config_key.name


def _check_keys_of_listeners(config: BrokerConfig, configs: Mapping[str, str]) -> None:
    """Raise Refused for keys of existing listeners that cannot change dynamically."""
    existing = {entry.partition("://")[0].lower() for entry in config.get("listeners")}
    for key in configs:
        base, listener = _base_of(key), key.removeprefix(LISTENER_PREFIX).partition(".")[0]
        if base is None or base in KEYS_OF_ALL_BROKERS or listener not in existing:
            continue
        if not base.startswith("ssl.") or BROKER_KEYS[base].update is Update.READ_ONLY:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"Configs cannot be updated dynamically for existing listener ListenerName({listener.upper()}), "
                "restart broker or create a new listener for update",
            )


def _refuse_any(sentence: str, keys: list[str]) -> None:
    if keys:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{sentence}: [{', '.join(keys)}]")


def _check_group(config: BrokerConfig, name: str, configs: Mapping[str, str]) -> None:
    if not name:
        raise Refused(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    unknown = next((key for key in configs if key not in GROUP_KEYS), None)
    if unknown is not None:
        raise Refused(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {unknown}")
    try:
        values = {key: GROUP_KEYS[key].parse(text) for key, text in configs.items()}
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from error
    for key, (low_key, high_key) in GROUP_BOUNDS.items():
        value, low, high = values.get(key), None if low_key is None else config.get(low_key), config.get(high_key)
        if isinstance(value, int) and (value > high or (low is not None and value < low)):
            bounds = f"less than or equal to {high}" if low is None else f"in the range {low} to {high} inclusive."
            raise Refused(ErrorCode.INVALID_CONFIG, f"{key} must be {bounds}")
    for kind in GROUP_KINDS:
        session, heartbeat = (f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms")
        longer, shorter = (values.get(key, config.get(f"group.{key}")) for key in (session, heartbeat))
        if isinstance(longer, int) and isinstance(shorter, int) and longer <= shorter:
            raise Refused(ErrorCode.INVALID_CONFIG, f"{session} must be greater than {heartbeat}")
    if str(values.get(_DEAD_LETTERS, "")).startswith("__"):
        raise Refused(ErrorCode.INVALID_CONFIG, f"{_DEAD_LETTERS}: DLQ topic name must not start with '__'")


def _check_client_metrics(name: str, configs: Mapping[str, str]) -> None:
    if not name:
        raise Refused(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    unknown = next((key for key in configs if key not in CLIENT_METRICS_KEYS), None)
    if unknown is not None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {unknown}")
    try:
        values = {key: CLIENT_METRICS_KEYS[key].parse(text) for key, text in configs.items()}
        interval_ms = values.get(_PUSH_INTERVAL)
        if isinstance(interval_ms, int) and not 100 <= interval_ms <= HOUR_MS:
            between = "interval must be between 100 and 3600000 (1 hour)"
            raise Refused(ErrorCode.INVALID_REQUEST, f"Invalid value {interval_ms} for {_PUSH_INTERVAL}, {between}")
        client_matches(_CLIENT_MATCH, values.get(_CLIENT_MATCH))
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from error

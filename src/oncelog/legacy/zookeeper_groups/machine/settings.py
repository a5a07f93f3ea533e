"""Settings of a consumer that balances through ZooKeeper, with the keys of Kafka's old consumer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from oncelog.base.units import INT32_MAX, MINUTE_MS, SECOND_MS
from oncelog.client.errors import ConfigError
from oncelog.legacy.zookeeper_groups.machine.nodes import check_group
from oncelog.legacy.zookeeper_groups.machine.starting_offsets import Storage

OldReset = Literal["smallest", "largest"]


@dataclass(frozen=True, slots=True)
class ZooKeeperGroupSettings:
    """Settings with the defaults of Kafka 1.0.2. Times in milliseconds."""

    group: str
    consumer_id: str | None = None
    """The consumer's id in its group; None generates one from host, time and a random number."""
    session_timeout_ms: int = 6 * SECOND_MS
    connection_timeout_ms: int = 6 * SECOND_MS
    rebalance_backoff_ms: int = 2 * SECOND_MS
    rebalance_max_retries: int = 4
    storage: Storage = Storage.ZOOKEEPER
    dual_commit: bool = False
    reset: OldReset = "largest"
    auto_commit: bool = True
    auto_commit_interval_ms: int = MINUTE_MS
    exclude_internal_topics: bool = True

    def __post_init__(self) -> None:
        check_group(self.group)
        if self.consumer_id is not None and ("/" in self.consumer_id or not self.consumer_id):
            raise ConfigError(f"consumer.id={self.consumer_id!r} must be non-empty and must not contain '/'")
        if self.session_timeout_ms < 1:
            raise ConfigError(f"zookeeper.session.timeout.ms must be greater than 0, got {self.session_timeout_ms}")

    @classmethod
    def from_properties(cls, group: str, properties: Mapping[str, str]) -> ZooKeeperGroupSettings:
        """Settings from the old consumer's keys; other keys are ignored. Raises ConfigError for an invalid value."""
        values: dict[str, Any] = {}
        for key, (name, read) in _KEYS.items():
            if key in properties:
                try:
                    values[name] = read(properties[key])
                except ValueError:
                    raise ConfigError(f"{key}={properties[key]!r}: expected {_EXPECTED[read]}") from None
        strategy = properties.get("partition.assignment.strategy", "range")
        if strategy != "range":
            raise ConfigError(f"partition.assignment.strategy={strategy} is not supported with ZooKeeper; use range")
        values.setdefault("dual_commit", values.get("storage") is Storage.KAFKA)
        if "rebalance_backoff_ms" not in values and "zookeeper.sync.time.ms" in properties:
            values["rebalance_backoff_ms"] = _milliseconds(properties["zookeeper.sync.time.ms"])
        if "connection_timeout_ms" not in values and "session_timeout_ms" in values:
            values["connection_timeout_ms"] = values["session_timeout_ms"]
        return replace(cls(group), **values)


def _milliseconds(text: str) -> int:
    value = int(text)
    if not 0 <= value <= INT32_MAX:
        raise ValueError
    return value


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _reset(text: str) -> OldReset:
    resets: dict[str, OldReset] = {
        "smallest": "smallest",
        "largest": "largest",
        "earliest": "smallest",
        "latest": "largest",
    }
    if text not in resets:
        raise ValueError
    return resets[text]


def _storage(text: str) -> Storage:
    return Storage(text.lower())


def _text(text: str) -> str:
    return text


_KEYS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "consumer.id": ("consumer_id", _text),
    "zookeeper.session.timeout.ms": ("session_timeout_ms", _milliseconds),
    "zookeeper.connection.timeout.ms": ("connection_timeout_ms", _milliseconds),
    "rebalance.backoff.ms": ("rebalance_backoff_ms", _milliseconds),
    "rebalance.max.retries": ("rebalance_max_retries", _milliseconds),
    "offsets.storage": ("storage", _storage),
    "dual.commit.enabled": ("dual_commit", _boolean),
    "auto.offset.reset": ("reset", _reset),
    "auto.commit.enable": ("auto_commit", _boolean),
    "auto.commit.interval.ms": ("auto_commit_interval_ms", _milliseconds),
    "exclude.internal.topics": ("exclude_internal_topics", _boolean),
}
_EXPECTED: Final[dict[Callable[[str], Any], str]] = {
    _milliseconds: "a whole number, 0 or more",
    _boolean: "true or false",
    _reset: "smallest or largest",
    _storage: "zookeeper or kafka",
    _text: "text",
}

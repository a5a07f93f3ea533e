"""Settings of a client: timeouts, retries and sizes, with Apache Kafka's names where it has one, validated once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from oncelog.base.units import INT32_MAX, MIB, MINUTE_MS, SECOND_MS
from oncelog.client.addresses import Address as Address
from oncelog.client.addresses import parse_addresses as parse_addresses
from oncelog.client.errors import ConfigError
from oncelog.client.machine.receive_buffer import LARGEST_KEPT
from oncelog.client.machine.sasl.exchange import TokenCallback
from oncelog.client.machine.versions import OLD_BROKERS
from oncelog.client.security import SecuritySettings, parse_security
from oncelog.client.setting_checks import check_names


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Settings of one client. Times in milliseconds, sizes in bytes."""

    client_id: str = "oncelog"
    connect_timeout_ms: int = field(default=10 * SECOND_MS, metadata={"key": "socket.connection.setup.timeout.ms"})
    bootstrap_timeout_ms: int = field(default=2 * SECOND_MS, metadata={"key": "bootstrap.timeout.ms"})
    """How long to retry while every bootstrap server refuses the connection."""
    request_timeout_ms: int = field(default=30 * SECOND_MS, metadata={"key": "request.timeout.ms"})
    retry_timeout_ms: int = field(default=60 * SECOND_MS, metadata={"key": "default.api.timeout.ms"})
    """The time for one operation, over all its attempts."""
    retry_backoff_ms: int = field(default=100, metadata={"key": "retry.backoff.ms"})
    retry_backoff_max_ms: int = field(default=SECOND_MS, metadata={"key": "retry.backoff.max.ms"})
    unknown_topic_grace_ms: int = field(default=SECOND_MS, metadata={"key": "unknown.topic.grace.ms"})
    """How long to wait for a missing topic: brokers learn of a new one with some delay."""
    metadata_max_age_ms: int = field(default=5 * MINUTE_MS, metadata={"key": "metadata.max.age.ms"})
    max_response_bytes: int = field(default=256 * MIB, metadata={"key": "max.response.bytes"})
    """The connection to a broker that announces a larger response is closed."""
    max_kept_bytes: int = field(default=LARGEST_KEPT, metadata={"key": "max.kept.bytes"})
    """The largest response buffer that a connection reuses; it keeps two."""
    receive_buffer_bytes: int = field(default=-1, metadata={"key": "receive.buffer.bytes"})
    send_buffer_bytes: int = field(default=-1, metadata={"key": "send.buffer.bytes"})
    assumed_broker_version: str = field(default="", metadata={"key": "assumed.broker.version"})
    """``0.8`` or ``0.9`` for brokers without ApiVersions (KIP-35). Empty: ask them, which needs 0.10."""
    security: SecuritySettings | None = None
    """TLS and SASL; None for PLAINTEXT. See ``oncelog.client.security`` for the keys."""
    # A proxy with broker ids of its own needs false.
    metadata_cluster_check: bool = field(default=True, metadata={"key": "metadata.cluster.check.enable"})

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            # −1 leaves the buffer's size to the system.
            lowest = -1 if setting.name.endswith("_buffer_bytes") else 0
            if isinstance(value, int) and not lowest <= value <= INT32_MAX:
                raise ConfigError(f"{setting.metadata['key']}={value} is out of range")
        if self.assumed_broker_version not in ("", *OLD_BROKERS):
            releases = " or ".join(OLD_BROKERS)
            raise ConfigError(
                f"assumed.broker.version={self.assumed_broker_version!r}: use {releases}, or leave it out"
            )

    @property
    def open_timeout_ms(self) -> int:
        """How long a new connection may take until it can be used. A frozen broker accepts connections: its first
        answer is waited for no longer than any other."""
        return min(self.connect_timeout_ms, self.request_timeout_ms)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], *, token: TokenCallback | None = None) -> ClientConfig:
        """The configuration given by Java-style keys (``request.timeout.ms``); keys of other programs are ignored.

        ``token`` is called at each new connection with SASL OAUTHBEARER. Raises ConfigError for an invalid value, for
        security settings that cannot be honoured, and for a key that nearly matches one of ours.
        """
        keys = {setting.metadata.get("key", "client.id") for setting in fields(cls)}
        # A misspelled key would be ignored silently.
        check_names(properties, keys)
        values: dict[str, object] = {"security": parse_security(properties, token)}
        if "client.id" in properties:
            values["client_id"] = properties["client.id"]
        for setting in fields(cls):
            key: str = setting.metadata.get("key", "")
            if key in properties:
                values[setting.name] = _parsed(key, properties[key], str(setting.type))
        return replace(cls(), **values)  # type: ignore[arg-type]  # keys are this class's own field names


def _parsed(key: str, text: str, kind: str) -> object:
    if kind == "str":
        return text
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{key}={text!r} is not a truth value: use true or false")
        return text.lower() == "true"
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{key}={text!r} is not a whole number") from None

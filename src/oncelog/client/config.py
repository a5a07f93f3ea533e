"""How a client behaves: timeouts, retries and sizes, with Apache Kafka's names where it has one.

The rule: values are checked once, here. ``from_properties`` reads Java-style keys (``request.timeout.ms``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final, NamedTuple

from oncelog.base.units import INT32_MAX, MIB, MINUTE_MS, SECOND_MS
from oncelog.client.errors import ConfigError

DEFAULT_PORT: Final = 9092


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(text: str) -> list[Address]:
    """``host[:port]`` separated by commas; IPv6 as ``[::1]:9092``. Raises ConfigError naming the wrong part."""
    addresses = [_parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ConfigError("no bootstrap server given; use host:port, for example localhost:9092")
    return addresses


def _parse_address(text: str) -> Address:
    wrong = ConfigError(f"{text!r} is not a broker address; use host:port, for example localhost:9092")
    if "://" in text:
        protocol, _, text = text.partition("://")
        if protocol.upper() != "PLAINTEXT":
            raise ConfigError(f"{protocol}:// is not supported; only PLAINTEXT is")
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise wrong
        port = port[1:]
    else:
        host, _, port = text.partition(":")
    if not host or any(character.isspace() or character in "/:" for character in host.replace(":", "") + port):
        raise wrong
    if not port:
        return Address(host, DEFAULT_PORT)
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise wrong
    return Address(host, int(port))


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Settings of one client. Times in milliseconds, sizes in bytes."""

    client_id: str = "oncelog"
    connect_timeout_ms: int = field(default=10 * SECOND_MS, metadata={"key": "socket.connection.setup.timeout.ms"})
    bootstrap_timeout_ms: int = field(default=2 * SECOND_MS, metadata={"key": "bootstrap.timeout.ms"})
    """How long to go on trying when every bootstrap server refuses the connection."""
    request_timeout_ms: int = field(default=30 * SECOND_MS, metadata={"key": "request.timeout.ms"})
    retry_timeout_ms: int = field(default=60 * SECOND_MS, metadata={"key": "default.api.timeout.ms"})
    """How long one operation may go on retrying, over all its attempts."""
    retry_backoff_ms: int = field(default=100, metadata={"key": "retry.backoff.ms"})
    retry_backoff_max_ms: int = field(default=SECOND_MS, metadata={"key": "retry.backoff.max.ms"})
    unknown_topic_grace_ms: int = field(default=SECOND_MS, metadata={"key": "unknown.topic.grace.ms"})
    """How long a topic that is not there may still appear: a new one takes a moment to be known everywhere."""
    metadata_max_age_ms: int = field(default=5 * MINUTE_MS, metadata={"key": "metadata.max.age.ms"})
    max_response_bytes: int = field(default=256 * MIB, metadata={"key": "max.response.bytes"})
    """A broker that announces more loses the connection."""
    receive_buffer_bytes: int = field(default=-1, metadata={"key": "receive.buffer.bytes"})
    send_buffer_bytes: int = field(default=-1, metadata={"key": "send.buffer.bytes"})

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            lowest = -1 if one.name.endswith("_buffer_bytes") else 0
            if isinstance(value, int) and not lowest <= value <= INT32_MAX:
                raise ConfigError(f"{one.metadata['key']}={value} is out of range")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], **given: object) -> ClientConfig:
        """From Java-style keys; keys that are not a client's (or not ours) are left alone.

        Raises ConfigError for a value that is no number and for a security protocol other than PLAINTEXT.
        """
        protocol = properties.get("security.protocol", "PLAINTEXT")
        if protocol.upper() != "PLAINTEXT":
            raise ConfigError(f"security.protocol={protocol} is not supported; only PLAINTEXT is")
        values: dict[str, object] = dict(given)
        if "client.id" in properties:
            values["client_id"] = properties["client.id"]
        for one in fields(cls):
            key: str = one.metadata.get("key", "")
            if key in properties:
                try:
                    values[one.name] = int(properties[key])
                except ValueError:
                    raise ConfigError(f"{key}={properties[key]!r} is not a whole number") from None
        return replace(cls(), **values)  # type: ignore[arg-type]  # keys are this class's own field names

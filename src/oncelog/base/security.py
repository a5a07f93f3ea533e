"""Security protocols and principals of connections."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of an unauthenticated connection, as Apache Kafka writes it."""


class SecurityProtocol(Enum):
    """The protocols of a listener (``listener.security.protocol.map``), by Apache Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Endpoint(NamedTuple):
    listener_name: str
    protocol: SecurityProtocol
    host: str
    """Empty for a listener on all addresses."""
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener_name}://{host}:{self.port}"


PLAINTEXT_LISTENER: Final = SecurityProtocol.PLAINTEXT.value
"""The listener of brokers without a configured one."""

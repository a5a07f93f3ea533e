"""The words of security that every room uses: what protects a connection, and who is at its other end."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a connection that has not said who it is, as Apache Kafka writes it."""


class SecurityProtocol(Enum):
    """The protocols of a listener (``listener.security.protocol.map``), by Apache Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """True if its bytes are encrypted by TLS."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """True if a client has to authenticate by SASL before anything else."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Endpoint(NamedTuple):
    """A listener of a broker, and where it is reached."""

    listener_name: str
    protocol: SecurityProtocol
    host: str
    """Empty where it listens on all addresses."""
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener_name}://{host}:{self.port}"


PLAINTEXT_LISTENER: Final = SecurityProtocol.PLAINTEXT.value
"""Name of the listener of brokers that were not told of others."""

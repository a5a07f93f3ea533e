"""The kinds of security of an in-process broker, and the configuration keys of each.

A broker has two listeners: CLIENTS, and BROKERS with certificates on both sides. Brokers of a cluster and
administrating tests use the second: its principal is a super user.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Final

from oncelog.security.properties import AUTHORIZER, BROKER_NAME, BROKERS, CLIENTS, MAPPING_RULES, MECHANISM, jaas

ISSUER: Final = "https://issuer.oncelog.test"
AUDIENCE: Final = "oncelog"
PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
PLAIN_KEY: Final = f"listener.name.{CLIENTS.lower()}.plain.sasl.jaas.config"
_CLIENTS: Final = f"listener.name.{CLIENTS.lower()}."
_BROKERS: Final = f"listener.name.{BROKERS.lower()}."


class Kind(Enum):
    """How clients authenticate, always over TLS."""

    TLS = "tls"
    """No authentication, over TLS: every client is ``User:ANONYMOUS`` and may do everything."""
    MTLS = "mtls"
    """Certificates (mutual TLS)."""
    SCRAM = "scram"
    """Passwords, with SCRAM-SHA-512 or -256."""
    PLAIN = "plain"
    """Passwords, with PLAIN."""
    OAUTH = "oauth"
    """Signed tokens, with OAUTHBEARER."""

    @classmethod
    def of(cls, name: str) -> Kind:
        """The kind of this name. Raises ValueError."""
        try:
            return cls(name)
        except ValueError:
            raise ValueError(
                f"security={name!r} is not known; use one of {', '.join(kind.value for kind in cls)}"
            ) from None

    @property
    def has_sasl(self) -> bool:
        return self in (Kind.SCRAM, Kind.PLAIN, Kind.OAUTH)

    @property
    def has_users(self) -> bool:
        return self is not Kind.TLS

    @property
    def protocol(self) -> str:
        return "SASL_SSL" if self.has_sasl else "SSL"


def broker_config(kind: Kind, directory: Path, key_set: Path) -> dict[str, str]:
    config = {
        "listener.security.protocol.map": f"{CLIENTS}:{kind.protocol},{BROKERS}:SSL",
        "inter.broker.listener.name": BROKERS,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "ssl.keystore.type": "PEM",
        f"{_CLIENTS}ssl.keystore.location": str(directory / "clients.pem"),
        f"{_BROKERS}ssl.keystore.location": str(directory / "brokers.pem"),
        f"{_BROKERS}ssl.client.auth": "required",
        "ssl.principal.mapping.rules": MAPPING_RULES,
    }
    if kind.has_users:
        config |= {"authorizer.class.name": AUTHORIZER, "super.users": f"User:{BROKER_NAME}"}
    return config | _login_config(kind, key_set)


def _login_config(kind: Kind, key_set: Path) -> dict[str, str]:
    mechanisms = f"{_CLIENTS}sasl.enabled.mechanisms"
    if kind is Kind.MTLS:
        return {f"{_CLIENTS}ssl.client.auth": "required"}
    if kind is Kind.SCRAM:
        return {mechanisms: f"{MECHANISM},SCRAM-SHA-256"}
    if kind is Kind.PLAIN:
        return {mechanisms: "PLAIN", PLAIN_KEY: jaas(PLAIN_MODULE, {})}
    if kind is Kind.OAUTH:
        return {
            mechanisms: "OAUTHBEARER",
            f"{_CLIENTS}oauthbearer.sasl.oauthbearer.jwks.endpoint.url": key_set.as_uri(),
            f"{_CLIENTS}oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
            f"{_CLIENTS}oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
        }
    return {}

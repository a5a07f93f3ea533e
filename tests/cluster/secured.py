"""Brokers that speak TLS with each other and with clients, and log in by SASL PLAIN."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.certificates import Authority

_USER: Final = "copier"
_PASSWORD: Final = "of-the-copier"
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_LISTENER: Final = "listener.name.sasl_ssl."


class Secured:
    """Certificates and users of a cluster. Beside SASL_SSL there is a PLAINTEXT listener, by which the test asks."""

    def __init__(self, directory: Path) -> None:
        authority = Authority()
        self._store = authority.broker().write(directory, "broker")
        self._trusted = directory / "authority.pem"
        self._trusted.write_text(authority.pem)

    def properties(self, port: int, secured_port: int) -> Mapping[str, str]:
        """Keys of the broker that listens on these ports."""
        stores = {
            f"{_LISTENER}ssl.keystore.type": "PEM",
            f"{_LISTENER}ssl.keystore.location": str(self._store),
            f"{_LISTENER}ssl.truststore.type": "PEM",
            f"{_LISTENER}ssl.truststore.location": str(self._trusted),
        }
        return {
            **stores,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},SASL_SSL://127.0.0.1:{secured_port}",
            f"{_LISTENER}sasl.enabled.mechanisms": "PLAIN",
            f"{_LISTENER}plain.sasl.jaas.config": f'{_PLAIN} required username="broker" password="of-brokers" '
            f'user_broker="of-brokers" user_{_USER}="{_PASSWORD}";',
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
        }

    @property
    def client(self) -> Mapping[str, str]:
        """Settings of a client, by librdkafka's names."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self._trusted),
            "sasl.mechanism": "PLAIN",
            "sasl.username": _USER,
            "sasl.password": _PASSWORD,
        }

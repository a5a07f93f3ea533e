"""Checks a client's settings: value ranges and misspelled names.

A key that nearly matches one of ours is refused, because ``securty.protocol=SSL`` must not leave a connection
unencrypted. Other keys are ignored: Java's clients and librdkafka, which share properties files, have hundreds more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from oncelog.base.suggestions import nearest
from oncelog.base.units import INT32_MAX
from oncelog.client.errors import ConfigError

SECURITY_KEYS: Final = frozenset(
    {
        "security.protocol",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "enable.ssl.certificate.verification",
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.password",
        "sasl.username",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
_OTHERS: Final = frozenset({"sasl.client.callback.handler.class", "socket.connection.setup.timeout.max.ms"})
"""Keys of other clients that resemble a misspelled one of ours, out of all keys of Apache Kafka 4.3 and librdkafka
2.16."""


def check_range(name: str, value: int, least: int) -> None:
    """Raise ConfigError for a value below ``least`` or above 32 bits."""
    if not least <= value <= INT32_MAX:
        raise ConfigError(f"{name}={value} is out of range: at least {least}, at most {INT32_MAX}")


def check_names(names: Iterable[str], keys: Collection[str]) -> None:
    """Raise ConfigError for a name that nearly matches one of ``keys`` or a security key."""
    valid = {*keys, *SECURITY_KEYS, "bootstrap.servers"}
    for name in names:
        if name in valid or name in _OTHERS:
            continue
        suggestion = nearest(name, valid)
        if suggestion is not None:
            raise ConfigError(f"{name} is not a setting; did you mean {suggestion}?")

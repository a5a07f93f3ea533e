"""A listener's TLS settings, from Apache Kafka's keys, with its checks and messages; no file is read here.

A listener's prefixed key overrides the plain one; unprefixed ``ssl.client.auth`` does not apply to SASL_SSL, where
clients identify themselves by SASL.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from oncelog.base.security import SecurityProtocol
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.kinds import ConfigError

PEM: Final = "PEM"
STORE_TYPES: Final = ("JKS", "PKCS12", PEM)
VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_ENDPOINT_KEY: Final = "ssl.endpoint.identification.algorithm"
_OLD_VERSIONS: Final = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1")


@dataclass(frozen=True, slots=True)
class StoreSettings:
    type: str
    """JKS (Java's name for JKS or PKCS12), PKCS12 or PEM."""
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    certificates: str | None = field(default=None, repr=False)
    """PEM instead of a file: the chain, or the trusted certificates."""
    key: str | None = field(default=None, repr=False)
    """PEM instead of a file; key stores only."""
    key_password: str | None = field(default=None, repr=False)

    @property
    def is_given(self) -> bool:
        """True if a file or inline PEM is configured."""
        return self.location is not None or self.certificates is not None


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS of a listener, and of connections to other brokers' listeners of the same name."""

    key_store: StoreSettings
    trust_store: StoreSettings
    client_auth: str = "none"
    """``none``, ``requested`` or ``required``."""
    versions: tuple[str, ...] = VERSIONS
    cipher_suites: tuple[str, ...] = ()
    check_host_name: bool = True
    mapping_rules: str = "DEFAULT"

    @property
    def locations(self) -> tuple[str, ...]:
        return tuple(store.location for store in (self.key_store, self.trust_store) if store.location is not None)


def tls_settings(config: BrokerConfig, listener_name: str, protocol: SecurityProtocol) -> TlsSettings:
    def value(key: str) -> Any:
        return config.of_listener(listener_name, key)

    client_auth = str(value("ssl.client.auth"))
    if protocol is SecurityProtocol.SASL_SSL and not config.is_set_for(listener_name, "ssl.client.auth"):
        client_auth = "none"
    return TlsSettings(
        key_store=_key_store(
            StoreSettings(
                type=store_type("ssl.keystore.type", value("ssl.keystore.type")),
                location=value("ssl.keystore.location") or None,
                password=value("ssl.keystore.password"),
                certificates=value("ssl.keystore.certificate.chain"),
                key=value("ssl.keystore.key"),
                key_password=value("ssl.key.password"),
            )
        ),
        trust_store=_trust_store(
            StoreSettings(
                type=store_type("ssl.truststore.type", value("ssl.truststore.type")),
                location=value("ssl.truststore.location") or None,
                password=value("ssl.truststore.password"),
                certificates=value("ssl.truststore.certificates"),
            )
        ),
        client_auth=client_auth,
        versions=tls_versions("ssl.enabled.protocols", value("ssl.enabled.protocols")),
        cipher_suites=tuple(filter(None, value("ssl.cipher.suites") or ())),
        check_host_name=check_host_name(_ENDPOINT_KEY, value(_ENDPOINT_KEY)),
        mapping_rules=str(value("ssl.principal.mapping.rules")),
    )


def store_type(key: str, text: str) -> str:
    """A store's type in capitals. Raises ConfigError for unsupported types."""
    if text.upper() not in STORE_TYPES:
        raise ConfigError.of_value(key, text, f"Stores of this type are not supported; use {', '.join(STORE_TYPES)}")
    return text.upper()


def _key_store(store: StoreSettings) -> StoreSettings:
    if store.key is not None:
        if store.type != PEM:
            raise _refused(
                "ssl.keystore.key",
                f"SSL private key can be specified only for PEM, but key store type is {store.type}.",
            )
        if store.certificates is None:
            raise _refused("ssl.keystore.key", "SSL private key is specified, but certificate chain is not specified.")
        if store.location is not None:
            raise _refused(
                "ssl.keystore.location", "Both SSL key store location and separate private key are specified."
            )
    elif store.certificates is not None:
        key = "ssl.keystore.certificate.chain"
        if store.type != PEM:
            raise _refused(
                key, f"SSL certificate chain can be specified only for PEM, but key store type is {store.type}."
            )
        raise _refused(key, "SSL certificate chain is specified, but private key is not specified")
    if store.type == PEM and store.location is not None and store.password is not None:
        sentence = "SSL key store password cannot be specified with PEM format, only key password may be specified."
        raise _refused("ssl.keystore.password", sentence)
    if store.location is None and store.key is None and store.password is not None:
        raise _refused("ssl.keystore.password", "SSL key store is not specified, but key store password is specified.")
    if store.type != PEM and store.location is not None and store.password is None:
        raise _refused("ssl.keystore.password", "SSL key store is specified, but key store password is not specified.")
    return store


def _trust_store(store: StoreSettings) -> StoreSettings:
    if store.certificates is not None:
        key = "ssl.truststore.certificates"
        if store.type != PEM:
            raise _refused(
                key, f"SSL trust store certs can be specified only for PEM, but trust store type is {store.type}."
            )
        if store.location is not None:
            raise _refused(key, "Both SSL trust store location and separate trust certificates are specified.")
    if store.type == PEM and store.location is not None and store.password is not None:
        raise _refused("ssl.truststore.password", "SSL trust store password cannot be specified for PEM format.")
    if store.location is None and store.certificates is None and store.password is not None:
        raise _refused(
            "ssl.truststore.password", "SSL trust store is not specified, but trust store password is specified."
        )
    return store


def _refused(key: str, sentence: str) -> ConfigError:
    return ConfigError(sentence, key=key)


def tls_versions(key: str, enabled: tuple[str, ...]) -> tuple[str, ...]:
    """The TLS versions enabled by ``key``, without those older than 1.2, which Java knows but this broker never offers.
    Raises ConfigError."""
    unknown = [version for version in enabled if version not in (*VERSIONS, *_OLD_VERSIONS)]
    if unknown:
        raise ConfigError.of_value(key, enabled, f"{unknown[0]} is not a TLS version; use {' or '.join(VERSIONS)}")
    supported = tuple(version for version in VERSIONS if version in enabled)
    if not supported:
        raise ConfigError.of_value(key, enabled, f"At least one of {' and '.join(VERSIONS)} must be enabled")
    return supported


def check_host_name(key: str, algorithm: str | None) -> bool:
    """True if the endpoint identification algorithm verifies host names. Raises ConfigError."""
    if algorithm is not None and algorithm.lower() not in ("https", "none", ""):
        raise ConfigError.of_value(key, algorithm, "https verifies host names, an empty value does not")
    return (algorithm or "").lower() == "https"

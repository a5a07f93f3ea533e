"""A broker's ZooKeeper connection settings, from Apache Kafka's former keys; no file is read here.

Security settings that cannot be honoured are refused: certificate revocation, login modules but DIGEST-MD5's, and
``zookeeper.set.acl`` without an identity for the ACLs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.kinds import ConfigError
from oncelog.core.controller.image.acl_nodes import EXTENDED_ACLS, LITERAL_ACLS
from oncelog.core.controller.image.layout import (
    BASE_PATHS,
    BROKER_CONFIGS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    FEATURES,
    LOGIN_SECRET,
    PRODUCER_ID_BLOCK,
    USER_CONFIGS,
)
from oncelog.core.sasl.jaas import JaasError, parse_jaas
from oncelog.node.listeners.tls import PEM, StoreSettings, TlsSettings, check_host_name, store_type, tls_versions

SENSITIVE: Final = (USER_CONFIGS, BROKER_CONFIGS, LOGIN_SECRET)
"""Nodes whose subtrees hold credentials and passwords."""
ROOTS: Final = (
    *(path for path in BASE_PATHS if path.count("/") == 1),
    CONTROLLER,
    CONTROLLER_EPOCH,
    FEATURES,
    PRODUCER_ID_BLOCK,
    LITERAL_ACLS,
    EXTENDED_ACLS,
)
"""The topmost nodes that brokers create."""
_SOCKET: Final = "zookeeper.clientCnxnSocket"
_NETTY: Final = "org.apache.zookeeper.ClientCnxnSocketNetty"
_JAAS: Final = "oncelog.zookeeper.sasl.jaas.config"
_DIGEST: Final = "oncelog.zookeeper.auth.digest"
_EXTENSIONS: Final = {".pem": PEM, ".p12": "PKCS12", ".pfx": "PKCS12"}


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    tls: TlsSettings | None = None
    """None: plain TCP."""
    sasl: tuple[str, str] | None = field(default=None, repr=False)
    """User and password for SASL."""
    digest: tuple[str, str] | None = field(default=None, repr=False)
    """User and password for ZooKeeper's digest scheme."""
    set_acl: bool = False


def zookeeper_settings(config: BrokerConfig) -> ZooKeeperSettings:
    """The settings of the connection to ZooKeeper. Raises ConfigError."""
    tls = _tls(config) if config.get("zookeeper.ssl.client.enable") else None
    settings = ZooKeeperSettings(tls, _sasl(config), _digest(config), bool(config.get("zookeeper.set.acl")))
    has_certificate = tls is not None and tls.key_store.is_given
    if settings.set_acl and not (settings.sasl or settings.digest or has_certificate):
        raise ConfigError(
            "zookeeper.set.acl is true, but the broker has no identity in ZooKeeper: set "
            f"{_JAAS}, {_DIGEST}, or zookeeper.ssl.client.enable=true with zookeeper.ssl.keystore.location",
            key="zookeeper.set.acl",
        )
    return settings


def _tls(config: BrokerConfig) -> TlsSettings:
    socket_class = config.get(_SOCKET)
    if socket_class not in (None, "", _NETTY):
        raise ConfigError.of_value(_SOCKET, socket_class, f"zookeeper.ssl.client.enable=true needs {_NETTY}")
    for key in ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"):
        if config.get(key):
            raise ConfigError.of_value(key, True, "Certificate revocation is not supported")
    versions = config.get("zookeeper.ssl.enabled.protocols") or (config.get("zookeeper.ssl.protocol"),)
    return TlsSettings(
        key_store=_store(
            config, "zookeeper.ssl.keystore.location", "zookeeper.ssl.keystore.type", "zookeeper.ssl.keystore.password"
        ),
        trust_store=_store(
            config,
            "zookeeper.ssl.truststore.location",
            "zookeeper.ssl.truststore.type",
            "zookeeper.ssl.truststore.password",
        ),
        versions=tls_versions("zookeeper.ssl.enabled.protocols", versions),
        cipher_suites=tuple(filter(None, config.get("zookeeper.ssl.cipher.suites") or ())),
        check_host_name=check_host_name(
            "zookeeper.ssl.endpoint.identification.algorithm",
            config.get("zookeeper.ssl.endpoint.identification.algorithm"),
        ),
    )


def _store(config: BrokerConfig, location_key: str, type_key: str, password_key: str) -> StoreSettings:
    location, password = config.get(location_key) or None, config.get(password_key) or None
    by_extension = _EXTENSIONS.get(PurePath(location or "").suffix.lower(), "JKS")
    kind = store_type(type_key, config.get(type_key) or by_extension)
    if location is None and password is not None:
        raise ConfigError(f"{password_key} is set, but {location_key} is not: set both, or neither")
    is_pem = kind == PEM
    return StoreSettings(kind, location, None if is_pem else password, key_password=password if is_pem else None)


def _sasl(config: BrokerConfig) -> tuple[str, str] | None:
    text = config.get(_JAAS)
    if not text:
        return None
    try:
        module = parse_jaas(text)
    except JaasError as error:
        raise ConfigError(f"{_JAAS}: {error}") from None
    if module.short_name != "DigestLoginModule":
        raise ConfigError(f"{_JAAS}: {module.short_name} is not supported, only DigestLoginModule is (no Kerberos)")
    missing = [name for name in ("username", "password") if not module.options.get(name)]
    if missing:
        raise ConfigError(f"{_JAAS} has no {missing[0]}: DigestLoginModule needs username and password")
    return module.options["username"], module.options["password"]


def _digest(config: BrokerConfig) -> tuple[str, str] | None:
    text = config.get(_DIGEST)
    if not text:
        return None
    user, colon, password = text.partition(":")
    if not user or not colon or not password:
        raise ConfigError(f"{_DIGEST} is not of the form USER:PASSWORD")
    return user, password

"""Apache Kafka's keys about ZooKeeper: what they mean, and what is refused because it would protect nothing."""

from __future__ import annotations

from types import ModuleType

import pytest

from oncelog.core.controller.image import acl_nodes, layout
from oncelog.node.listeners.broker_settings import BrokerConfig, ConfigError
from oncelog.node.listeners.zookeeper_settings import ROOTS, zookeeper_settings

TLS = {"zookeeper.ssl.client.enable": "true"}
MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


def test_nothing_is_set_by_default() -> None:
    settings = zookeeper_settings(BrokerConfig())
    assert (settings.tls, settings.sasl, settings.digest, settings.set_acl) == (None, None, None, False)


@pytest.mark.parametrize("module", [layout, acl_nodes])
def test_every_node_of_the_layout_is_at_a_root_or_below(module: ModuleType) -> None:
    constants = [value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)]
    paths = [value for value in constants if value.startswith("/")]
    assert paths
    assert {f"/{path.split('/')[1]}" for path in (*paths, *layout.BASE_PATHS)} <= set(ROOTS)


@pytest.mark.parametrize(
    ("name", "given", "found"),
    [
        ("a.pem", None, "PEM"),
        ("a.p12", None, "PKCS12"),
        ("a.jks", None, "JKS"),
        ("a", None, "JKS"),
        ("a", "pem", "PEM"),
    ],
)
def test_the_type_of_a_store_follows_from_its_name(name: str, given: str | None, found: str) -> None:
    values = TLS | {"zookeeper.ssl.truststore.location": name}
    if given is not None:
        values["zookeeper.ssl.truststore.type"] = given
    tls = zookeeper_settings(BrokerConfig(values)).tls
    assert tls is not None
    assert tls.trust_store.type == found


def test_the_password_of_a_pem_store_is_that_of_its_key() -> None:
    values = TLS | {"zookeeper.ssl.keystore.location": "a.pem", "zookeeper.ssl.keystore.password": "p"}
    tls = zookeeper_settings(BrokerConfig(values)).tls
    assert tls is not None
    assert (tls.key_store.password, tls.key_store.key_password) == (None, "p")


@pytest.mark.parametrize(
    ("values", "versions"),
    [
        ({}, ("TLSv1.2",)),
        ({"zookeeper.ssl.protocol": "TLSv1.3"}, ("TLSv1.3",)),
        ({"zookeeper.ssl.enabled.protocols": "TLSv1.3,TLSv1.2"}, ("TLSv1.2", "TLSv1.3")),
    ],
)
def test_versions_are_apache_kafkas(values: dict[str, str], versions: tuple[str, ...]) -> None:
    tls = zookeeper_settings(BrokerConfig(TLS | values)).tls
    assert tls is not None
    assert tls.versions == versions
    assert tls.check_host_name


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (TLS | {"zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNIO"}, "needs .*Netty"),
        (TLS | {"zookeeper.ssl.crl.enable": "true"}, "revocation is not supported"),
        (TLS | {"zookeeper.ssl.ocsp.enable": "true"}, "revocation is not supported"),
        (TLS | {"zookeeper.ssl.keystore.password": "p"}, "keystore.location is not"),
        (TLS | {"zookeeper.ssl.truststore.type": "BKS"}, "Stores of this type are not supported"),
        (TLS | {"zookeeper.ssl.protocol": "TLSv1.1"}, "At least one of TLSv1.2 and TLSv1.3 must be enabled"),
        ({"zookeeper.set.acl": "true"}, "the broker has no identity"),
        (TLS | {"zookeeper.set.acl": "true"}, "the broker has no identity"),
        ({"oncelog.zookeeper.auth.digest": "alice"}, "USER:PASSWORD"),
        (
            {"oncelog.zookeeper.sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"},
            "Krb5LoginModule is not supported",
        ),
        ({"oncelog.zookeeper.sasl.jaas.config": f"{MODULE} required username=broker;"}, "has no password"),
        ({"oncelog.zookeeper.sasl.jaas.config": f"{MODULE} required username=broker password=hush"}, "semicolon"),
    ],
)
def test_what_would_protect_nothing_is_refused(values: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as refused:
        zookeeper_settings(BrokerConfig(values))
    assert "hush" not in str(refused.value)


def test_secrets_are_in_no_repr() -> None:
    values = {
        "oncelog.zookeeper.auth.digest": "broker:hush",
        "oncelog.zookeeper.sasl.jaas.config": f'{MODULE} required username=broker password="hush";',
    }
    settings = zookeeper_settings(BrokerConfig(values))
    assert settings.sasl == settings.digest == ("broker", "hush")
    assert "hush" not in repr(settings)

"""The stores of TLS, from the keys of a listener; Apache Kafka's sentences for those that do not go together."""

from __future__ import annotations

import pytest

from oncelog.base.security import SecurityProtocol
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.kinds import ConfigError
from oncelog.node.listeners.tls import TlsSettings, tls_settings


def settings(protocol: SecurityProtocol = SecurityProtocol.SSL, **keys: str) -> TlsSettings:
    config = BrokerConfig({key.replace("_", "."): text for key, text in keys.items()})
    return tls_settings(config, "OUTSIDE", protocol)


def test_a_listeners_keys_win_and_secrets_are_in_no_text() -> None:
    result = settings(
        **{"ssl.keystore.location": "/plain", "listener.name.outside.ssl.keystore.location": "/own.p12"},
        ssl_keystore_type="pkcs12",
        ssl_keystore_password="hush",
    )
    assert (result.key_store.type, result.key_store.location, result.locations) == ("PKCS12", "/own.p12", ("/own.p12",))
    assert "hush" not in repr(result)


def test_client_auth_is_for_sasl_ssl_only_where_the_listener_says_so() -> None:
    assert settings(ssl_client_auth="required").client_auth == "required"
    assert settings(SecurityProtocol.SASL_SSL, ssl_client_auth="required").client_auth == "none"
    own = {"listener.name.outside.ssl.client.auth": "required"}
    assert settings(SecurityProtocol.SASL_SSL, **own).client_auth == "required"


def test_versions_are_the_newer_ones_of_those_enabled() -> None:
    assert settings(ssl_enabled_protocols="TLSv1.1,TLSv1.2").versions == ("TLSv1.2",)
    for text in ("TLSv1.1", "TLSv2"):
        with pytest.raises(ConfigError, match=r"ssl.enabled.protocols"):
            settings(ssl_enabled_protocols=text)


def test_host_names_are_verified_unless_that_is_switched_off() -> None:
    assert settings().check_host_name
    assert not settings(**{"listener.name.outside.ssl.endpoint.identification.algorithm": ""}).check_host_name
    with pytest.raises(ConfigError):
        settings(**{"ssl.endpoint.identification.algorithm": "ldaps"})


PEM = {"ssl_keystore_type": "PEM", "ssl_truststore_type": "PEM"}
REFUSED = [
    ({"ssl_keystore_key": "k"}, "SSL private key can be specified only for PEM, but key store type is JKS."),
    (PEM | {"ssl_keystore_key": "k"}, "SSL private key is specified, but certificate chain is not specified."),
    (
        PEM | {"ssl_keystore_certificate_chain": "c"},
        "SSL certificate chain is specified, but private key is not specified",
    ),
    (
        PEM | {"ssl_keystore_key": "k", "ssl_keystore_certificate_chain": "c", "ssl_keystore_location": "/x"},
        "Both SSL key store location and separate private key are specified.",
    ),
    (
        PEM | {"ssl_keystore_location": "/x", "ssl_keystore_password": "p"},
        "SSL key store password cannot be specified with PEM format, only key password may be specified.",
    ),
    ({"ssl_keystore_password": "p"}, "SSL key store is not specified, but key store password is specified."),
    ({"ssl_keystore_location": "/x"}, "SSL key store is specified, but key store password is not specified."),
    (
        {"ssl_truststore_certificates": "c"},
        "SSL trust store certs can be specified only for PEM, but trust store type is JKS.",
    ),
    (
        PEM | {"ssl_truststore_certificates": "c", "ssl_truststore_location": "/x"},
        "Both SSL trust store location and separate trust certificates are specified.",
    ),
    (
        PEM | {"ssl_truststore_location": "/x", "ssl_truststore_password": "p"},
        "SSL trust store password cannot be specified for PEM format.",
    ),
    ({"ssl_truststore_password": "p"}, "SSL trust store is not specified, but trust store password is specified."),
    ({"ssl_keystore_type": "BKS"}, "Stores of this type are not supported; use JKS, PKCS12, PEM"),
]


@pytest.mark.parametrize(("keys", "sentence"), REFUSED)
def test_what_does_not_go_together_is_refused(keys: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settings(**keys)
    assert sentence in str(refused.value)

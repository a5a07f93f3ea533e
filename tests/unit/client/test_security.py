"""Settings of security: librdkafka's names, some of Java's, and nothing silently ignored."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from oncelog.client.config import ClientConfig
from oncelog.client.errors import ConfigError
from oncelog.client.machine.sasl.exchange import SaslSettings, Token
from oncelog.client.security import SecuritySettings, TlsSettings, UnsecuredToken, parse_security

SASL = {"security.protocol": "sasl_ssl", "sasl.mechanisms": "SCRAM-SHA-512"}
USER = {"sasl.username": "me", "sasl.password": "secret"}


def test_nothing_is_plain_text() -> None:
    assert parse_security({}) is None
    assert parse_security({"security.protocol": "PLAINTEXT", "ssl.ca.location": "/x"}) is None


def test_names_of_librdkafka() -> None:
    given = SASL | USER | {"ssl.ca.location": "/ca.pem", "ssl.endpoint.identification.algorithm": "none"}
    tls = TlsSettings(ca_location="/ca.pem", check_host_name=False)
    assert parse_security(given) == SecuritySettings(tls, SaslSettings("SCRAM-SHA-512", "me", "secret"))


def test_names_of_java() -> None:
    text = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="a\\"b";'
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": text}
    assert parse_security(given) == SecuritySettings(None, SaslSettings("PLAIN", "me", 'a"b'))
    stores = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca", "ssl.keystore.type": "PEM"}
    stores |= {"ssl.keystore.location": "/me"}
    security = parse_security({"security.protocol": "SSL"} | stores)
    assert security == SecuritySettings(TlsSettings(ca_location="/ca", certificate_location="/me"))


def test_unsecured_tokens_have_to_be_allowed_by_name() -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    given["sasl.oauthbearer.config"] = "principal=admin scope=a,b lifeSeconds=60 extension_x=y"
    with pytest.raises(ConfigError, match="unsecure"):
        parse_security(given)
    security = parse_security(given | {"enable.sasl.oauthbearer.unsecure.jwt": "true"})
    assert security is not None
    assert security.sasl is not None
    assert security.sasl.token == UnsecuredToken("admin", scopes=("a", "b"), life_s=60, extensions=(("x", "y"),))

    def callback() -> Token:
        return Token("x")

    security = parse_security({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, callback)
    assert security is not None
    assert security.sasl is not None
    assert security.sasl.token is callback


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"security.protocol": "TLS"}, "security.protocol"),
        ({"sasl.password": "x"}, "PLAINTEXT"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism"),
        (SASL, "sasl.username"),
        (SASL | USER | {"sasl.mechanism": "GSSAPI"}, "GSSAPI"),
        (SASL | {"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"}, "sasl.jaas.config"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "token"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/x.jks"}, "ssl.truststore"),
        ({"security.protocol": "SSL", "ssl.key.location": "/x"}, "ssl.certificate.location"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldaps"}, "ldaps"),
        ({"security.protocol": "SSL", "enable.ssl.certificate.verification": "maybe"}, "maybe"),
        ({"security.protocol": "SSL", "ssl.cipher.suites": "NULL"}, "ssl.cipher.suites"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(given: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        parse_security(given)


def test_files_that_cannot_be_used_are_named() -> None:
    with pytest.raises(ConfigError, match=r"ssl\.ca\.location \(ssl\.truststore\.location\) /nowhere"):
        TlsSettings(ca_location="/nowhere").context()
    with pytest.raises(ConfigError, match=r"ssl\.certificate\.location \(ssl\.keystore\.location\) /nowhere"):
        TlsSettings(certificate_location="/nowhere").context()


def test_settings_travel_to_other_processes_and_show_no_secrets() -> None:
    config = ClientConfig.from_properties(SASL | USER | {"ssl.key.password": "hidden"})
    assert pickle.loads(pickle.dumps(config)) == config
    assert "secret" not in repr(config)
    assert "hidden" not in repr(config)


def test_a_token_comes_from_a_file_as_it_is_at_each_connection(tmp_path: Path) -> None:
    path = tmp_path / "a token.jwt"
    path.write_text("first\n", encoding="ascii")
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    settings = parse_security(given | {"sasl.oauthbearer.token.endpoint.url": path.as_uri()})
    assert settings is not None
    assert settings.sasl is not None
    assert settings.sasl.token is not None
    assert settings.sasl.token().value == "first"
    path.write_text("second", encoding="ascii")
    assert settings.sasl.token().value == "second"
    for text in ("", "x" * 70_000):
        path.write_text(text, encoding="ascii")
        with pytest.raises(ConfigError, match="it holds no token"):
            settings.sasl.token()


@pytest.mark.parametrize("url", ["https://issuer.example/token", "file://elsewhere/token", "token.jwt"])
def test_a_place_of_tokens_that_is_no_file_is_refused(url: str) -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.token\.endpoint\.url is not supported"):
        parse_security(given | {"sasl.oauthbearer.token.endpoint.url": url})

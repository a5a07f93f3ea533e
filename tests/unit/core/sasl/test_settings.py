"""The SASL settings of a listener: each mechanism has what it needs, or the listener is refused."""

from __future__ import annotations

import pytest

from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.kinds import ConfigError
from oncelog.core.sasl.settings import listener_sasl

PACKAGE = "org.apache.kafka.common.security"
PLAIN_LINE = f'{PACKAGE}.plain.PlainLoginModule required username="broker" password="hidden" user_alice="hidden";'
PLAIN = {
    "listener.name.out.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.out.plain.sasl.jaas.config": PLAIN_LINE,
}
TOKENS = {
    "listener.name.out.sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "https://issuer/keys",
    "sasl.oauthbearer.expected.issuer": "https://issuer",
    "sasl.oauthbearer.expected.audience": "oncelog,others",
}


def settings(values, listener="OUT"):
    return listener_sasl(BrokerConfig(values), listener)


def test_plain_has_the_users_of_its_line():
    result = settings(PLAIN)
    assert (result.mechanisms, result.plain_passwords) == (("PLAIN",), {"alice": "hidden"})
    assert "hidden" not in repr(result)


def test_a_key_counts_for_the_mechanism_before_the_listener_before_all():
    name = "connections.max.reauth.ms"
    values = {**PLAIN, name: "1"}
    assert settings(values).max_reauth_ms == {"PLAIN": 1}
    values[f"listener.name.out.{name}"] = "2"
    assert settings(values).max_reauth_ms == {"PLAIN": 2}
    values[f"listener.name.out.plain.{name}"] = "3"
    assert settings(values).max_reauth_ms == {"PLAIN": 3}


def test_scram_needs_nothing_but_its_name():
    assert settings({"sasl.enabled.mechanisms": "SCRAM-SHA-512, SCRAM-SHA-256"}).mechanisms == (
        "SCRAM-SHA-512",
        "SCRAM-SHA-256",
    )


def test_the_default_is_kerberos_and_refused_with_the_key_to_set():
    with pytest.raises(ConfigError, match=r"listener\.name\.out\.sasl\.enabled\.mechanisms"):
        settings({})


@pytest.mark.parametrize("mechanisms", ["", "PLAIN,GSSAPI", "plain", "SCRAM-SHA-1"])
def test_a_mechanism_that_is_none_is_refused(mechanisms):
    with pytest.raises(ConfigError, match="SCRAM-SHA-256"):
        settings({**PLAIN, "listener.name.out.sasl.enabled.mechanisms": mechanisms})


@pytest.mark.parametrize(
    "values",
    [
        {"sasl.enabled.mechanisms": "PLAIN"},
        {"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": PLAIN_LINE},
        {"sasl.enabled.mechanisms": "PLAIN", "listener.name.out.sasl.jaas.config": PLAIN_LINE},
        {**PLAIN, "listener.name.out.plain.sasl.jaas.config": PLAIN_LINE.replace("Plain", "Scram")},
        {**PLAIN, "listener.name.out.plain.sasl.jaas.config": PLAIN_LINE + PLAIN_LINE},
        {**PLAIN, "listener.name.out.plain.sasl.jaas.config": PLAIN_LINE.rstrip(";")},
    ],
)
def test_plain_without_a_line_of_its_own_is_refused_and_no_secret_told(values):
    with pytest.raises(ConfigError, match=r"listener\.name\.out\.plain\.sasl\.jaas\.config") as error:
        settings(values)
    assert "hidden" not in str(error.value)


def test_tokens_have_rules_and_a_key_set():
    result = settings({**TOKENS, "listener.name.out.oauthbearer.sasl.oauthbearer.sub.claim.name": "azp"})
    assert result.token_rules is not None
    assert result.token_rules.audiences == ("oncelog", "others")
    assert result.token_rules.subject_claim == "azp"
    assert result.key_set is not None
    assert result.key_set.url == "https://issuer/keys"


@pytest.mark.parametrize("missing", [name for name in TOKENS if name.startswith("sasl.")])
def test_cve_2026_110985_without_key_set_issuer_or_audience_there_is_no_listener(missing):
    with pytest.raises(ConfigError, match=missing.replace(".", r"\.")):
        settings({name: value for name, value in TOKENS.items() if name != missing})


@pytest.mark.parametrize(("claim", "missing"), [("issuer", None), ("audience", ())])
def test_a_claim_that_is_not_to_be_verified_need_not_be_configured(claim, missing):
    allowed = {f"sasl.oauthbearer.allow.unverified.{claim}": "true"}
    assert settings({**TOKENS, **allowed}).token_rules == settings(TOKENS).token_rules
    without = {name: value for name, value in TOKENS.items() if not name.endswith(f"expected.{claim}")}
    rules = settings({**without, **allowed}).token_rules
    assert rules is not None
    assert (rules.issuer if claim == "issuer" else rules.audiences) == missing
    with pytest.raises(ConfigError, match=r"jwks\.endpoint\.url"):
        settings({name: value for name, value in {**TOKENS, **allowed}.items() if "jwks" not in name})


@pytest.mark.parametrize("url", ["http://issuer/keys", "ftp://x/y", "file://host/keys", "https://", "keys.json"])
def test_a_key_set_comes_from_tls_or_a_file(url):
    with pytest.raises(ConfigError, match="https"):
        settings({**TOKENS, "sasl.oauthbearer.jwks.endpoint.url": url})


def test_cve_2025_27817_whose_keys_sign_is_not_changed_while_running():
    config = BrokerConfig(TOKENS).with_dynamic(
        {"sasl.oauthbearer.jwks.endpoint.url": "https://attacker/keys"},
        {"listener.name.out.oauthbearer.sasl.oauthbearer.expected.issuer": "https://attacker"},
    )
    sasl = listener_sasl(config, "OUT")
    assert sasl.key_set is not None
    assert sasl.key_set.url == "https://issuer/keys"
    assert sasl.token_rules is not None
    assert sasl.token_rules.issuer == "https://issuer"


def test_unsigned_tokens_are_refused():
    line = f'{PACKAGE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="x";'
    with pytest.raises(ConfigError, match="unsigned"):
        settings({**TOKENS, "listener.name.out.oauthbearer.sasl.jaas.config": line})


def test_classes_of_others_are_refused_but_the_validating_one():
    handler = "sasl.server.callback.handler.class"
    with pytest.raises(ConfigError, match="Java class"):
        settings({**PLAIN, f"listener.name.out.plain.{handler}": "com.example.Handler"})
    with pytest.raises(ConfigError, match="Java class"):
        settings({**PLAIN, "principal.builder.class": "com.example.Builder"})
    validating = f"{PACKAGE}.oauthbearer.OAuthBearerValidatorCallbackHandler"
    assert settings({**TOKENS, f"listener.name.out.oauthbearer.{handler}": validating}).token_rules is not None

"""The SASL settings of one listener, from Apache Kafka's keys: its mechanisms and what each needs.

Look-ups follow Apache Kafka: ``listener.name.NAME.MECHANISM.key``, then ``listener.name.NAME.key``, then ``key``; for
``sasl.jaas.config`` only the first counts. Incomplete settings fail closed: one unusable mechanism makes the listener
an error. No error contains a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.keys import listener_prefix
from oncelog.core.configs.kinds import ConfigError
from oncelog.core.sasl.exchange import MECHANISMS, OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from oncelog.core.sasl.jaas import JaasError, JaasModule, parse_jaas
from oncelog.core.sasl.tokens import TokenRules

JAAS: Final = "sasl.jaas.config"
ENABLED: Final = "sasl.enabled.mechanisms"
JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
ISSUER: Final = "sasl.oauthbearer.expected.issuer"
AUDIENCE: Final = "sasl.oauthbearer.expected.audience"
INTER_BROKER: Final = "sasl.mechanism.inter.broker.protocol"
HANDLER: Final = "sasl.server.callback.handler.class"
_UNVERIFIED: Final = {
    ISSUER: "sasl.oauthbearer.allow.unverified.issuer",
    AUDIENCE: "sasl.oauthbearer.allow.unverified.audience",
}
"""The keys that lift the requirement of another."""
_JWKS_TIMES: Final = (
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
)
_USER: Final = "user_"
_MODULES: Final = {PLAIN: "PlainLoginModule", OAUTHBEARER: "OAuthBearerLoginModule"}
_SCRAM_MODULE: Final = "ScramLoginModule"
_VALIDATING: Final = "OAuthBearerValidatorCallbackHandler"


@dataclass(frozen=True, slots=True)
class KeySetSettings:
    """The location of token issuers' public keys, and how often to read it."""

    url: str
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int


@dataclass(frozen=True, slots=True)
class ListenerSasl:
    listener_name: str
    mechanisms: tuple[str, ...]
    """In configured order, in which clients get them."""
    plain_passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_reauth_ms: Mapping[str, int] = field(default_factory=dict)
    """The maximum life of a session by mechanism; 0: unlimited."""
    token_rules: TokenRules | None = None
    key_set: KeySetSettings | None = None
    max_receive_bytes: int = 524288
    """The largest request before authentication."""
    failure_delay_ms: int = 100
    """The delay of the answer to a refused login."""


def listener_sasl(config: BrokerConfig, listener_name: str) -> ListenerSasl:
    """Raises ConfigError that names missing or wrong keys."""
    mechanisms = _mechanisms(config, listener_name)
    for mechanism in mechanisms:
        _check_handler(config, listener_name, mechanism)
    modules = {mechanism: _module(config, listener_name, mechanism) for mechanism in mechanisms}
    rules = key_set = None
    if OAUTHBEARER in mechanisms:
        fixed = BrokerConfig(config.static)  # the issuer of tokens cannot change over the network
        rules, key_set = _token_rules(fixed, listener_name), _key_set(fixed, listener_name)
    return ListenerSasl(
        listener_name,
        mechanisms,
        _plain_passwords(modules.get(PLAIN)),
        {
            mechanism: max(0, config.of_listener(listener_name, "connections.max.reauth.ms", mechanism))
            for mechanism in mechanisms
        },
        rules,
        key_set,
        int(config.get("sasl.server.max.receive.size")),
        int(config.get("connection.failed.authentication.delay.ms")),
    )


def _mechanisms(config: BrokerConfig, listener_name: str) -> tuple[str, ...]:
    mechanisms: tuple[str, ...] = tuple(config.of_listener(listener_name, ENABLED))
    unknown = next((mechanism for mechanism in mechanisms if mechanism not in MECHANISMS), None)
    if mechanisms and unknown is None:
        return mechanisms
    reason = "a SASL listener needs a mechanism" if unknown is None else f"{unknown} is not supported"
    # The default of Apache Kafka's key.
    if unknown == "GSSAPI":
        reason += " (Kerberos; it is the default)"
    raise ConfigError.of_value(
        ENABLED,
        mechanisms,
        f"{reason}: set {listener_prefix(listener_name)}{ENABLED} to some of {', '.join(MECHANISMS)}",
    )


def jaas_module(config: BrokerConfig, listener_name: str, mechanism: str) -> JaasModule | None:
    """Raises ConfigError."""
    key = _jaas_key(listener_name, mechanism)
    text = config.get(key) if config.is_set(key) else None
    if text is None:
        return None
    try:
        module = parse_jaas(text)
    except JaasError as error:
        raise ConfigError(f"{_jaas_key(listener_name, mechanism)}: {error}") from None
    expected = _MODULES.get(mechanism, _SCRAM_MODULE)
    if module.short_name != expected:
        raise ConfigError(f"{_jaas_key(listener_name, mechanism)}: {mechanism} takes {expected}")
    return module


def check_line(key: str, text: str) -> None:
    """Raises ConfigError, which does not contain the line."""
    try:
        module = parse_jaas(text)
    except JaasError as error:
        raise ConfigError(f"Invalid value [hidden] for configuration {key}: {error}") from None
    mechanism = key.removesuffix(f".{JAAS}").rpartition(".")[2].upper()
    expected = _MODULES.get(mechanism, _SCRAM_MODULE)
    if mechanism in MECHANISMS and module.short_name != expected:
        raise ConfigError(f"Invalid value [hidden] for configuration {key}: {mechanism} takes {expected}")


def check_mechanisms(key: str, text: str) -> None:
    """Raises ConfigError."""
    unknown = next((name for name in (part.strip() for part in text.split(",")) if name not in MECHANISMS), None)
    if unknown is not None:
        raise ConfigError.of_value(key, text, f"{unknown} is not supported: set it to some of {', '.join(MECHANISMS)}")


def inter_broker_credentials(config: BrokerConfig, listener_name: str) -> tuple[str, str, str]:
    """The mechanism, user and password of this broker for a listener of other brokers. Raises ConfigError."""
    mechanism = str(config.of_listener(listener_name, INTER_BROKER))
    if mechanism not in MECHANISMS or mechanism == OAUTHBEARER:
        raise ConfigError(
            f"{INTER_BROKER}={mechanism} is not supported between brokers; use PLAIN, {SCRAM_SHA_256} or "
            f"{SCRAM_SHA_512}",
            key=INTER_BROKER,
        )
    module = jaas_module(config, listener_name, mechanism)
    options = {} if module is None else module.options
    if not options.get("username") or not options.get("password"):
        raise ConfigError(
            f"brokers reach each other over {listener_name} by {mechanism}: set username and password in "
            f"{_jaas_key(listener_name, mechanism)}",
            key=INTER_BROKER,
        )
    return mechanism, options["username"], options["password"]


def _module(config: BrokerConfig, listener_name: str, mechanism: str) -> JaasModule | None:
    module = jaas_module(config, listener_name, mechanism)
    if module is None and mechanism == PLAIN:
        raise ConfigError(
            f"listener {listener_name} has PLAIN, but no users: set {_jaas_key(listener_name, PLAIN)} to "
            '"org.apache.kafka.common.security.plain.PlainLoginModule required user_NAME=\\"password\\";"'
        )
    if module is not None and any(option.startswith("unsecured") for option in module.options):
        raise ConfigError(f"{_jaas_key(listener_name, mechanism)}: unsigned tokens are not accepted")
    return module


def _plain_passwords(module: JaasModule | None) -> Mapping[str, str]:
    options = {} if module is None else module.options
    return {name[len(_USER) :]: value for name, value in options.items() if name.startswith(_USER)}


def _check_handler(config: BrokerConfig, listener_name: str, mechanism: str) -> None:
    """Reject a custom class, whose checks would silently be skipped here."""
    name = config.of_listener(listener_name, HANDLER, mechanism)
    if name and not (mechanism == OAUTHBEARER and name.rpartition(".")[2] == _VALIDATING):
        raise ConfigError(
            f"{HANDLER} of listener {listener_name} and {mechanism} is a Java class; only {_VALIDATING} is known here, "
            f"for {OAUTHBEARER}"
        )


def _token_rules(config: BrokerConfig, listener_name: str) -> TokenRules:
    settings = {name: config.of_listener(listener_name, name, OAUTHBEARER) for name in (JWKS_URL, ISSUER, AUDIENCE)}
    lifted = {key for key, allow in _UNVERIFIED.items() if config.of_listener(listener_name, allow, OAUTHBEARER)}
    missing = [name for name, value in settings.items() if not value and name not in lifted]
    if missing:
        raise ConfigError(
            f"listener {listener_name} has {OAUTHBEARER}, which would take anybody's tokens without "
            f"{', '.join(missing)}: set {'it' if len(missing) == 1 else 'them'}"
        )
    skew_s = int(config.of_listener(listener_name, "sasl.oauthbearer.clock.skew.seconds", OAUTHBEARER))
    claims = [
        config.of_listener(listener_name, name, OAUTHBEARER)
        for name in ("sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.scope.claim.name")
    ]
    # A negative skew would reject valid tokens.
    if skew_s < 0 or not all(claims):
        raise ConfigError("sasl.oauthbearer.clock.skew.seconds is negative, or the name of a claim is empty")
    return TokenRules(settings[ISSUER] or None, tuple(settings[AUDIENCE]), skew_s, *claims)


def _key_set(config: BrokerConfig, listener_name: str) -> KeySetSettings:
    url = str(config.of_listener(listener_name, JWKS_URL, OAUTHBEARER))
    parts = urlsplit(url)
    if parts.scheme == "https":
        usable = bool(parts.hostname) and parts.username is None
    else:
        usable = parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/")
    if not usable:
        raise ConfigError(f"{JWKS_URL} of listener {listener_name} is neither https://host/… nor file:///path")
    refresh_ms, backoff_ms, backoff_max_ms = (
        int(config.of_listener(listener_name, name, OAUTHBEARER)) for name in _JWKS_TIMES
    )
    if min(refresh_ms, backoff_ms, backoff_max_ms) <= 0:
        raise ConfigError(f"{', '.join(_JWKS_TIMES)} have to be positive")
    return KeySetSettings(url, refresh_ms, backoff_ms, backoff_max_ms)


def _jaas_key(listener_name: str, mechanism: str) -> str:
    return f"{listener_prefix(listener_name)}{mechanism.lower()}.{JAAS}"

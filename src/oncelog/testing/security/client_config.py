"""Settings for clients to log in at an in-process broker: for librdkafka, or Java."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from oncelog.security.properties import MECHANISM, jaas
from oncelog.testing.security.kinds import PLAIN_MODULE, Kind

_MODULES: Final = {
    Kind.SCRAM: "org.apache.kafka.common.security.scram.ScramLoginModule",
    Kind.PLAIN: PLAIN_MODULE,
}
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer."


@dataclass(frozen=True, slots=True)
class User:
    name: str
    password: str | None = field(default=None, repr=False)
    identity: Path | None = None
    """The client's private key and certificate."""
    token_file: Path | None = None
    """A token, for clients that read it from a file."""


def librdkafka_config(
    kind: Kind, servers: str, ca: Path, user: User | None, token: Callable[[], tuple[str, float]]
) -> dict[str, Any]:
    """Settings for librdkafka and oncelog's own clients: text, except ``oauth_cb``, which returns a token and its
    expiry."""
    config: dict[str, Any] = {
        "bootstrap.servers": servers,
        "security.protocol": kind.protocol,
        "ssl.ca.location": str(ca),
    }
    if user is None:
        return config
    if user.identity is not None:
        return {**config, "ssl.certificate.location": str(user.identity), "ssl.key.location": str(user.identity)}
    if kind is Kind.OAUTH:
        return {**config, "sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _config: token()}
    mechanism = MECHANISM if kind is Kind.SCRAM else "PLAIN"
    return {**config, "sasl.mechanism": mechanism, "sasl.username": user.name, "sasl.password": user.password}


def java_config(kind: Kind, servers: str, ca: Path, user: User | None) -> dict[str, Any]:
    """Settings for Java clients and tools, for oncelog's own, and (prefixed with ``kafka.``) for Spark's."""
    config = {
        "bootstrap.servers": servers,
        "security.protocol": kind.protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
    }
    if user is None:
        return config
    if user.identity is not None:
        return {**config, "ssl.keystore.type": "PEM", "ssl.keystore.location": str(user.identity)}
    return {**config, **_java_login(kind, user)}


def _java_login(kind: Kind, user: User) -> Mapping[str, str]:
    if kind is Kind.OAUTH:
        assert user.token_file is not None
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": jaas(f"{_OAUTH}OAuthBearerLoginModule", {}),
            "sasl.login.callback.handler.class": f"{_OAUTH}OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.jwt.retriever.class": f"{_OAUTH}FileJwtRetriever",
            "sasl.oauthbearer.token.endpoint.url": user.token_file.as_uri(),
        }
    module = jaas(_MODULES[kind], {"username": user.name, "password": user.password or ""})
    return {"sasl.mechanism": MECHANISM if kind is Kind.SCRAM else "PLAIN", "sasl.jaas.config": module}

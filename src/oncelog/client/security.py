"""Security settings of connections, with librdkafka's names; Java's are accepted if they mean the same.

========================================== ===========================================================================
``security.protocol``                      PLAINTEXT (default), SSL, SASL_PLAINTEXT, SASL_SSL
``sasl.mechanism`` (or ``sasl.mechanisms``) PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER
``sasl.username``, ``sasl.password``       or Java's ``sasl.jaas.config`` of PlainLoginModule and ScramLoginModule
``sasl.oauthbearer.token.endpoint.url``    ``file:///…``: a file with the token, read at each new connection
``sasl.oauthbearer.config``                with ``enable.sasl.oauthbearer.unsecure.jwt=true``, for tests only
``ssl.ca.location``, ``ssl.ca.pem``        default: what the system trusts; or Java's PEM ``ssl.truststore.location``
``ssl.certificate.location``, ``ssl.key.location``, ``ssl.key.password``; or Java's PEM ``ssl.keystore.location``
``ssl.endpoint.identification.algorithm``  ``https`` (default); ``none`` or empty to take any host name
``enable.ssl.certificate.verification``    ``true`` (default)
========================================== ===========================================================================

Certificates and host names are verified unless a setting turns that off. A setting that cannot be honoured is refused,
never ignored. No message contains a secret.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from oncelog.client.errors import ConfigError
from oncelog.client.machine.sasl.exchange import OAUTHBEARER, SaslSettings, Token, TokenCallback

if TYPE_CHECKING:
    import ssl

PROTOCOLS: Final = {
    "PLAINTEXT": (False, False),
    "SSL": (True, False),
    "SASL_PLAINTEXT": (False, True),
    "SASL_SSL": (True, True),
}
_JAAS = re.compile(r"^\s*\S*\.(Plain|Scram)LoginModule\s+required\b(.*?);?\s*$", re.DOTALL)
_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""")
_OAUTH_OPTION = re.compile(r"(\w+)=(\S*)")
_TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_HANDLER: Final = "sasl.login.callback.handler.class"
_MAX_TOKEN_BYTES: Final = 65536
_REFUSED: Final = {
    "sasl.kerberos.service.name": "Kerberos is not supported",
    "sasl.oauthbearer.method": "tokens come from a callback or a file (sasl.oauthbearer.token.endpoint.url)",
    "ssl.keystore.password": "only PEM stores are read, their password is ssl.key.password",
    "ssl.truststore.password": "only PEM stores are read, which have none",
    "ssl.crl.location": "revocation lists are not read",
    "ssl.cipher.suites": "the cipher suites are those of this Python's OpenSSL",
}


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The trusted certificates, and our own."""

    ca_location: str | None = None
    ca_pem: str | None = None
    certificate_location: str | None = None
    key_location: str | None = None
    key_password: str | None = field(default=None, repr=False)
    check_host_name: bool = True
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """The SSL context for connections. Raises ConfigError for unusable files."""
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.ca_location, cadata=self.ca_pem)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"ssl.ca.location (ssl.truststore.location) {self.ca_location}: {_reason(error)}"
            ) from None
        context.check_hostname = self.check_host_name and self.verify
        if not self.verify:
            context.verify_mode = ssl.CERT_NONE
        if self.certificate_location is not None:
            try:
                # An empty password instead of none, or OpenSSL would ask for it on the terminal.
                context.load_cert_chain(self.certificate_location, self.key_location, self.key_password or "")
            except (OSError, ValueError) as error:
                text = f"ssl.certificate.location (ssl.keystore.location) {self.certificate_location}: {_reason(error)}"
                raise ConfigError(text) from None
        return context


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """TLS and SASL of a connection; None for a layer that is not used."""

    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None


@dataclass(frozen=True, slots=True)
class UnsecuredToken:
    """librdkafka's unsecured JSON web tokens: without a signature, so only for tests."""

    principal: str
    principal_claim: str = "sub"
    scope_claim: str = "scope"
    scopes: tuple[str, ...] = ()
    life_s: int = 3600
    extensions: tuple[tuple[str, str], ...] = ()

    def __call__(self) -> Token:
        """A token valid from now for ``life_s`` seconds."""
        now_s = time.time_ns() // 10**6 / 1000
        claims: dict[str, object] = {self.principal_claim: self.principal, "iat": now_s, "exp": now_s + self.life_s}
        if self.scopes:
            claims[self.scope_claim] = list(self.scopes)
        return Token(f"{_segment({'alg': 'none'})}.{_segment(claims)}.", dict(self.extensions))


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file with a token, which another program renews before it expires."""

    path: Path

    def __call__(self) -> Token:
        """The present token. Raises ConfigError."""
        try:
            with self.path.open("rb") as file:
                text = file.read(_MAX_TOKEN_BYTES + 1).decode("ascii").strip()
        except (OSError, ValueError) as error:
            raise ConfigError(f"{_TOKEN_URL} {self.path}: {_reason(error)}") from None
        if not text or len(text) > _MAX_TOKEN_BYTES:
            raise ConfigError(f"{_TOKEN_URL} {self.path}: it holds no token")
        return Token(text)


def parse_security(properties: Mapping[str, str], token: TokenCallback | None = None) -> SecuritySettings | None:
    """The security settings in ``properties``; None for PLAINTEXT. Raises ConfigError naming what is wrong."""
    given = {name: value for name, value in properties.items() if name.startswith(("ssl.", "sasl.", "enable.s"))}
    name = properties.get("security.protocol", "PLAINTEXT").upper()
    if name not in PROTOCOLS:
        raise ConfigError(f"security.protocol={name} is not known; use one of {', '.join(PROTOCOLS)}")
    with_tls, with_sasl = PROTOCOLS[name]
    if not with_tls and not with_sasl:
        if "sasl.password" in given or "sasl.jaas.config" in given:
            # Credentials that are silently unused would hide a mistake.
            raise ConfigError("sasl.* is given, but security.protocol is PLAINTEXT; SASL_SSL would use it")
        return None
    for key, reason in _REFUSED.items():
        if given.get(key):
            raise ConfigError(f"{key} is not supported: {reason}")
    handler = given.get(_HANDLER, "")
    if handler and handler.rpartition(".")[2] != "OAuthBearerLoginCallbackHandler":
        raise ConfigError(f"{_HANDLER} is not supported: a Java class; tokens come from a callback or a file")
    return SecuritySettings(_tls(given) if with_tls else None, _sasl(given, token) if with_sasl else None)


def _tls(given: Mapping[str, str]) -> TlsSettings:
    for store in ("ssl.truststore", "ssl.keystore"):
        if f"{store}.location" in given and given.get(f"{store}.type", "JKS").upper() != "PEM":
            raise ConfigError(
                f"{store}.location is a Java store; use PEM files (ssl.ca.location, …) or {store}.type=PEM"
            )
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", "none", ""):
        raise ConfigError(f"ssl.endpoint.identification.algorithm={algorithm} is not supported; https and none are")
    ca_location = given.get("ssl.ca.location") or given.get("ssl.truststore.location")
    certificate = given.get("ssl.certificate.location") or given.get("ssl.keystore.location")
    key = given.get("ssl.key.location")
    if key and not certificate:
        raise ConfigError("ssl.key.location is given without ssl.certificate.location")
    return TlsSettings(
        ca_location=ca_location,
        ca_pem=given.get("ssl.ca.pem"),
        certificate_location=certificate,
        key_location=key,
        key_password=given.get("ssl.key.password"),
        check_host_name=algorithm == "https",
        verify=_boolean(given, "enable.ssl.certificate.verification", default=True),
    )


def _sasl(given: Mapping[str, str], token: TokenCallback | None) -> SaslSettings:
    mechanism = (given.get("sasl.mechanism") or given.get("sasl.mechanisms") or "").upper()
    if not mechanism:
        raise ConfigError("security.protocol with SASL needs sasl.mechanism")
    username, password = given.get("sasl.username", ""), given.get("sasl.password", "")
    if "sasl.jaas.config" in given and mechanism != OAUTHBEARER:
        username, password = _jaas(given["sasl.jaas.config"])
    if mechanism == OAUTHBEARER and token is None and "sasl.oauthbearer.config" in given:
        if not _boolean(given, "enable.sasl.oauthbearer.unsecure.jwt", default=False):
            raise ConfigError(
                "sasl.oauthbearer.config makes unsigned tokens: enable.sasl.oauthbearer.unsecure.jwt=true"
            )
        token = _unsecured(given["sasl.oauthbearer.config"])
    if mechanism == OAUTHBEARER and token is None and given.get(_TOKEN_URL):
        token = _token_file(given[_TOKEN_URL])
    return SaslSettings(mechanism, username, password, token)


def _token_file(url: str) -> TokenFile:
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ConfigError(f"{_TOKEN_URL} is not supported but for files: file:///path")
    return TokenFile(Path(unquote(parts.path)))


def _jaas(text: str) -> tuple[str, str]:
    module = _JAAS.match(text)
    options = {
        m[1]: re.sub(r"\\(.)", r"\1", m[2] or m[3] or "") for m in _JAAS_OPTION.finditer(module[2] if module else "")
    }
    if "username" not in options or "password" not in options:
        raise ConfigError(
            'sasl.jaas.config: only …PlainLoginModule or …ScramLoginModule required username="" password="";'
        )
    return options["username"], options["password"]


def _unsecured(text: str) -> UnsecuredToken:
    options = dict(_OAUTH_OPTION.findall(text))
    life = options.get("lifeSeconds", "3600")
    if not options.get("principal"):
        raise ConfigError("sasl.oauthbearer.config needs principal=…")
    if not life.isdigit() or not 0 < int(life) <= 10**9:
        raise ConfigError(f"sasl.oauthbearer.config: lifeSeconds={life} is not possible")
    prefix = "extension_"
    return UnsecuredToken(
        principal=options["principal"],
        principal_claim=options.get("principalClaimName", "sub"),
        scope_claim=options.get("scopeClaimName", "scope"),
        scopes=tuple(part for part in options.get("scope", "").split(",") if part),
        life_s=int(life),
        extensions=tuple((k[len(prefix) :], v) for k, v in options.items() if k.startswith(prefix)),
    )


def _boolean(given: Mapping[str, str], key: str, *, default: bool) -> bool:
    value = given.get(key, str(default)).lower()
    if value not in ("true", "false"):
        raise ConfigError(f"{key}={value} is neither true nor false")
    return value == "true"


def _segment(claims: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims, separators=(",", ":")).encode()).decode().rstrip("=")


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()

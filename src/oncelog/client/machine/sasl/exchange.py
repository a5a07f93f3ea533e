"""The SASL exchange of a connection (KIP-43, 152, 368): handshake, then tokens in SaslAuthenticate until both agree.

The server's messages are bounded before they are parsed. A refusal is AuthenticationFailed, which is never retried.
Secrets never appear in texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from oncelog.base.errors import ErrorCode
from oncelog.client.errors import AuthenticationFailed, ConfigError, code_name
from oncelog.client.machine.sasl.scram import HASHES, MAX_MESSAGE_BYTES, Scram
from oncelog.wire.message import Request
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, *HASHES, OAUTHBEARER)
_SEPARATOR: Final = "\x01"


class Token(NamedTuple):
    """A bearer token, and extensions for the broker (KIP-342)."""

    value: str
    extensions: Mapping[str, str] = {}


TokenCallback = Callable[[], Token]


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The client's SASL credentials. ``token`` is called at each new connection, for OAUTHBEARER."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token: TokenCallback | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            raise ConfigError(f"sasl.mechanism={self.mechanism} is not supported; {', '.join(MECHANISMS)} are")
        if self.mechanism == OAUTHBEARER:
            if self.token is None:
                raise ConfigError("sasl.mechanism=OAUTHBEARER needs a token: a callback or sasl.oauthbearer.config")
        elif not self.username or not self.password:
            raise ConfigError(f"sasl.mechanism={self.mechanism} needs sasl.username and sasl.password")
        if "\0" in self.username + self.password:
            raise ConfigError("sasl.username and sasl.password must not contain NUL")


class _Exchange(Protocol):
    def first(self) -> bytes: ...

    def step(self, message: bytes) -> bytes | None: ...


class _Once:
    """A mechanism of one message; a non-empty answer is the reason of a refusal."""

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._reason = ""

    def first(self) -> bytes:
        return self._message

    def step(self, message: bytes) -> bytes | None:
        if self._reason:
            raise AuthenticationFailed(f"the broker refuses the token: {self._reason}")
        if not message:
            return None
        # OAUTHBEARER: the reason is acknowledged.
        self._reason = message[:300].decode(errors="replace")
        return _SEPARATOR.encode()


class SaslMachine:
    """One authentication: ``next_request`` is to be sent, its response given to ``answered``, until ``done``."""

    def __init__(self, settings: SaslSettings, nonce: str) -> None:
        self.done = False
        self.session_lifetime_ms = 0
        """Milliseconds for which the broker accepts requests before a new authentication (KIP-368); 0 for ever."""
        self._settings = settings
        self._nonce = nonce
        self._exchange: _Exchange | None = None
        self._message: bytes | None = None

    def next_request(self) -> Request[Any]:
        """The next request: SaslHandshake, then SaslAuthenticate."""
        if self._message is None:
            return SaslHandshakeRequest(mechanism=self._settings.mechanism)
        return SaslAuthenticateRequest(auth_bytes=self._message)

    def answered(self, response: Any) -> None:
        """Apply the response to ``next_request``. Raises AuthenticationFailed."""
        if isinstance(response, SaslHandshakeResponse):
            self._shaken(response)
        elif isinstance(response, SaslAuthenticateResponse):
            self._stepped(response)

    def _shaken(self, response: SaslHandshakeResponse) -> None:
        mechanism = self._settings.mechanism
        if response.error_code:
            theirs = ", ".join(response.mechanisms[:8])[:200] or "none"
            raise AuthenticationFailed(f"the broker does not have SASL mechanism {mechanism}; it has {theirs}")
        self._exchange = _exchange(self._settings, self._nonce)
        self._message = self._exchange.first()

    def _stepped(self, response: SaslAuthenticateResponse) -> None:
        if response.error_code:
            reason = (response.error_message or "no reason given")[:300].replace("\n", " ")
            name = code_name(response.error_code)
            if response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED:
                raise AuthenticationFailed(f"authentication with {self._settings.mechanism} failed: {reason}")
            raise AuthenticationFailed(f"authentication with {self._settings.mechanism} failed: {reason} ({name})")
        if self._exchange is None or len(response.auth_bytes) > MAX_MESSAGE_BYTES:
            raise AuthenticationFailed(
                "the broker answered the authentication out of order or at too great a length; is it a Kafka broker?"
            )
        message = self._exchange.step(bytes(response.auth_bytes))
        if message is None:
            self.session_lifetime_ms = max(0, response.session_lifetime_ms)
            self.done = True
        else:
            self._message = message


def _exchange(settings: SaslSettings, nonce: str) -> _Exchange:
    if settings.mechanism in HASHES:
        return Scram(settings.mechanism, settings.username, settings.password, nonce)
    # NUL user NUL password (RFC 4616).
    if settings.mechanism == PLAIN:
        return _Once(f"\0{settings.username}\0{settings.password}".encode())
    if settings.token is None:
        raise ConfigError("OAUTHBEARER needs a token")
    return _Once(bearer_message(settings.token()))


def bearer_message(token: Token) -> bytes:
    """The first message of OAUTHBEARER (RFC 7628). Raises ConfigError for a token or extension it cannot carry."""
    if not token.value or any(character <= " " or character > "~" for character in token.value):
        raise ConfigError("a bearer token has to be printable ASCII without spaces")
    parts = ["n,,", f"auth=Bearer {token.value}"]
    for name, value in token.extensions.items():
        if not (name.isascii() and name.isalpha()) or name == "auth" or _SEPARATOR in value:
            raise ConfigError(f"{name!r} is not a possible extension of a bearer token")
        parts.append(f"{name}={value}")
    return (_SEPARATOR.join(parts) + _SEPARATOR * 2).encode()

"""OAUTHBEARER (RFC 7628, KIP-255, KIP-342), the server side: the client presents a token signed by an issuer.

An exchange tries one token: a rejected one cannot be followed by another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, Protocol

from oncelog.core.sasl.exchange import Check, InvalidToken, Login, LoginRefused, Step, sasl_name, text_of

MAX_MESSAGE_BYTES: Final = 131072
INVALID_TOKEN: Final = '{"status":"invalid_token"}'
_SEPARATOR: Final = "\x01"
_TOKEN_CHARACTERS: Final = frozenset("-_.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_VALUE_CHARACTERS: Final = frozenset(" \t\r\n").union(map(chr, range(0x21, 0x7F)))


class TokenCheck(NamedTuple):
    verify: Callable[[], None]
    """Verify its signature: at least a tenth of a millisecond, for a worker. Raises InvalidToken."""
    login: Callable[[int], Login]
    """The token's principal and expiry, at a time in ms; trusted only after ``verify``. Raises InvalidToken."""


class TokenValidator(Protocol):
    def begin(self, token: str) -> TokenCheck:
        """Check a token's form. Raises InvalidToken."""


class BearerMessage(NamedTuple):
    token: str
    authorization_id: str
    """The user that the client wants to be; empty: the token's."""
    extensions: dict[str, str]


class _State(Enum):
    # ``n,,^Aauth=Bearer token^A…^A``: if it is valid, the answer is empty: DONE. Otherwise it is
    # ``{"status":"invalid_token"}``: REFUSED.
    FIRST = "first"
    # ``^A`` is answered with a refusal: DONE.
    REFUSED = "refused"
    # No message is accepted.
    DONE = "done"


class OAuthBearer:
    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._state = _State.FIRST
        self._reason = ""

    def step(self, message: bytes, now_ms: int) -> Step | Check:
        """Implements :class:`oncelog.core.sasl.exchange.Exchange`."""
        # Done in advance: any exception ends the exchange.
        state, self._state = self._state, _State.DONE
        if state is _State.REFUSED and message == _SEPARATOR.encode():
            raise LoginRefused(self._reason, INVALID_TOKEN)
        if state is not _State.FIRST:
            raise LoginRefused(f"a message after the exchange {self._reason}".rstrip())
        bearer = read_message(message)
        try:
            check = self._validator.begin(bearer.token)
        except InvalidToken as error:
            return self._invalid(error)
        return Check(check.verify, partial(self._verified, bearer, check))

    def _verified(self, bearer: BearerMessage, check: TokenCheck, failure: InvalidToken | None, now_ms: int) -> Step:
        """``failure`` is the error of the signature check."""
        try:
            if failure is not None:
                raise failure
            login = check.login(now_ms)
        except InvalidToken as error:
            return self._invalid(error)
        if bearer.authorization_id and bearer.authorization_id != login.user:
            raise LoginRefused.saying(
                f"Authentication failed: Client requested an authorization id ({bearer.authorization_id}) that is "
                f"different from the token's principal name ({login.user})"
            )
        return Step(b"", login)

    def _invalid(self, error: InvalidToken) -> Step:
        self._state, self._reason = _State.REFUSED, f"the token is not valid: {error}"
        return Step(INVALID_TOKEN.encode())


def read_message(message: bytes) -> BearerMessage:
    """Raises LoginRefused."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise LoginRefused(f"an OAUTHBEARER message of {len(message)} bytes, the maximum is {MAX_MESSAGE_BYTES}")
    header, first, rest = text_of(message).partition(_SEPARATOR)
    if not first or not rest.endswith(_SEPARATOR) or not header.startswith("n,") or not header.endswith(","):
        raise LoginRefused("Invalid OAUTHBEARER client first message")
    identity = header[2:-1]
    if identity and (not identity.startswith("a=") or "," in identity or len(identity) == len("a=")):
        raise LoginRefused("Invalid OAUTHBEARER client first message")
    pairs = dict(_pairs(rest[:-1]))
    scheme, _, token = pairs.pop("auth", "").partition(" ")
    token = token.lstrip(" ")
    if scheme.lower() != "bearer" or not token or not _TOKEN_CHARACTERS.issuperset(token):
        raise LoginRefused("Invalid OAUTHBEARER client first message: no bearer token in 'auth'")
    return BearerMessage(token, sasl_name(identity[2:]), pairs)


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Keys and values, each terminated by a separator."""
    if not text:
        return
    if not text.endswith(_SEPARATOR):
        raise LoginRefused("Invalid OAUTHBEARER client first message: a pair does not end")
    seen = set()
    for pair in text[:-1].split(_SEPARATOR):
        key, equals, value = pair.partition("=")
        if not (equals and key.isascii() and key.isalpha() and value and _VALUE_CHARACTERS.issuperset(value)):
            raise LoginRefused("Invalid OAUTHBEARER client first message: not a pair of key and value")
        if key in seen:
            raise LoginRefused("Invalid OAUTHBEARER client first message: a key twice")
        seen.add(key)
        yield key, value

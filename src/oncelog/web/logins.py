"""Logins: how a request identifies its user. Sessions build on it (``sessions``); permissions are the cluster's.

Password and token files must be readable by their owner only. Comparisons take the same time whatever is wrong.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from oncelog.client.errors import ConfigError

MAX_NAME_LENGTH: Final = 200
MIN_TOKEN_BYTES: Final = 16


class Login(Protocol):
    """A way to identify the user of a request."""

    @property
    def challenge(self) -> str | None:
        """The WWW-Authenticate header of a 401 response; None if there is nothing to send."""

    @property
    def header(self) -> str:
        """The lower-case name of the header that identifies the user; empty if no header does."""

    @property
    def by_form(self) -> bool:
        """True if the user logs in once by a form and the session identifies the user from then on."""

    def user_of(self, headers: Mapping[str, str]) -> str | None:
        """The user that sent these headers (lower-case names); None for an unknown user."""

    def user_by_token(self, token: str) -> str | None:
        """The user that typed this token into the form; None if it is wrong or there is no form."""


@dataclass(frozen=True, slots=True)
class NoLogin:
    """No login: everyone who can reach the server, which is this machine, is the user ``local``."""

    challenge: str | None = None
    header: str = ""
    by_form: bool = False

    def user_of(self, headers: Mapping[str, str]) -> str | None:
        return "local"

    def user_by_token(self, token: str) -> str | None:
        return None


@dataclass(frozen=True, slots=True)
class Basic:
    """User names and passwords (RFC 7617), in lines of NAME:PASSWORD."""

    passwords: Mapping[str, bytes] = field(repr=False)
    challenge: str | None = 'Basic realm="oncelog", charset="UTF-8"'
    header: str = "authorization"
    by_form: bool = False

    def user_of(self, headers: Mapping[str, str]) -> str | None:
        scheme, _, encoded = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        expected = self.passwords.get(name)
        # An unknown name is compared too, so that it takes as long as a wrong password.
        is_right = hmac.compare_digest(expected if expected is not None else b"\0", password.encode())
        return name if is_right and expected is not None and colon else None

    def user_by_token(self, token: str) -> str | None:
        return None


@dataclass(frozen=True, slots=True)
class Token:
    """A secret shared by all users: typed once, or sent as a bearer token (RFC 6750)."""

    token: bytes = field(repr=False)
    challenge: str | None = None
    header: str = "authorization"
    by_form: bool = True

    def user_of(self, headers: Mapping[str, str]) -> str | None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return self.user_by_token(token) if scheme.lower() == "bearer" else None

    def user_by_token(self, token: str) -> str | None:
        return "token" if hmac.compare_digest(self.token, token.strip().encode()) else None


@dataclass(frozen=True, slots=True)
class Header:
    """The user name that a proxy in front puts into a header, and strips from browsers' requests. The gate rejects
    requests with two such headers."""

    name: str
    challenge: str | None = None
    by_form: bool = False

    @property
    def header(self) -> str:
        return self.name.lower()

    def user_of(self, headers: Mapping[str, str]) -> str | None:
        name = headers.get(self.header, "").strip()
        return name if 0 < len(name) <= MAX_NAME_LENGTH else None

    def user_by_token(self, token: str) -> str | None:
        return None


def login_of(kind: str, argument: str) -> Login:
    """The login of ``--auth KIND ARGUMENT``. Raises ConfigError."""
    if kind == "header":
        return Header(argument)
    if kind not in ("basic", "token"):
        raise ConfigError(f"--auth {kind} {argument}: expected basic FILE, token FILE or header NAME")
    text = _private_text(Path(argument))
    if kind == "token":
        token = text.strip().encode()
        if len(token) < MIN_TOKEN_BYTES:
            raise ConfigError(f"the token in {argument} has {len(token)} bytes; the minimum is {MIN_TOKEN_BYTES}")
        # Spaces are allowed: a person may type a sentence.
        if not all(0x20 <= byte < 0x7F for byte in token):
            raise ConfigError(
                f"the token in {argument} has characters other than printable ASCII, which clients do not send as a "
                "bearer token: use letters and digits"
            )
        return Token(token)
    passwords = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, password = line.partition(":")
        if not colon or not name or not password:
            raise ConfigError(f"{argument}: line {number} is not NAME:PASSWORD")
        passwords[name] = password.encode()
    if not passwords:
        raise ConfigError(f"{argument} has no user; add lines of NAME:PASSWORD")
    return Basic(passwords)


def _private_text(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}") from None
    if mode & 0o077:
        raise ConfigError(f"{path} holds secrets and can be read by others; chmod 600 it")
    return text

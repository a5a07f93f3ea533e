"""Logins: who a request comes from. Sessions come after it (``sessions``); permissions are the cluster's own.

Files of passwords and tokens are their owner's alone; what others could read is refused. Comparisons take the same
time whatever is wrong.
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

LONGEST_NAME: Final = 200
SHORTEST_TOKEN: Final = 16


class Login(Protocol):
    """A way to tell who somebody is."""

    @property
    def challenge(self) -> str | None:
        """The WWW-Authenticate header of a refusal; None where there is none to send."""

    @property
    def header(self) -> str:
        """The header (in lower case) that tells who somebody is; empty where none does."""

    @property
    def by_form(self) -> bool:
        """True where somebody logs in once, by a form, and the session says who it is from then on."""

    def user_of(self, headers: Mapping[str, str]) -> str | None:
        """The user that sent these headers (names in lower case); None for nobody that is known."""

    def user_by_token(self, token: str) -> str | None:
        """The user that typed this token into the form; None where it is wrong, or there is no such form."""


@dataclass(frozen=True, slots=True)
class Nobody:
    """No login: everybody who can reach the console, which is this machine."""

    challenge: str | None = None
    header: str = ""
    by_form: bool = False

    def user_of(self, headers: Mapping[str, str]) -> str | None:
        """Everybody is ``local``."""
        return "local"

    def user_by_token(self, token: str) -> str | None:
        """Nothing: there is no form."""
        return None


@dataclass(frozen=True, slots=True)
class Basic:
    """Names and passwords (RFC 7617), lines of NAME:PASSWORD."""

    passwords: Mapping[str, bytes] = field(repr=False)
    challenge: str | None = 'Basic realm="oncelog console", charset="UTF-8"'
    header: str = "authorization"
    by_form: bool = False

    def user_of(self, headers: Mapping[str, str]) -> str | None:
        """The name in Authorization, if its password is right."""
        scheme, _, encoded = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        known = self.passwords.get(name)
        right = hmac.compare_digest(known if known is not None else b"\0", password.encode())
        return name if right and known is not None and colon else None

    def user_by_token(self, token: str) -> str | None:
        """There is no form."""
        return None


@dataclass(frozen=True, slots=True)
class Token:
    """One secret that everybody shares who may come: typed once, or sent as a bearer token (RFC 6750)."""

    token: bytes = field(repr=False)
    challenge: str | None = None
    header: str = "authorization"
    by_form: bool = True

    def user_of(self, headers: Mapping[str, str]) -> str | None:
        """``token``, if Authorization has it."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return self.user_by_token(token) if scheme.lower() == "bearer" else None

    def user_by_token(self, token: str) -> str | None:
        """``token``, if it is right."""
        return "token" if hmac.compare_digest(self.token, token.strip().encode()) else None


@dataclass(frozen=True, slots=True)
class Header:
    """The name that a proxy in front puts into a header, which it has to strip from what browsers send. Two such
    headers are refused at the gate, since one of them may be the browser's."""

    name: str
    challenge: str | None = None
    by_form: bool = False

    @property
    def header(self) -> str:
        """The header's name in lower case."""
        return self.name.lower()

    def user_of(self, headers: Mapping[str, str]) -> str | None:
        """The name in the header."""
        found = headers.get(self.header, "").strip()
        return found if 0 < len(found) <= LONGEST_NAME else None

    def user_by_token(self, token: str) -> str | None:
        """There is no form."""
        return None


def login_of(kind: str, argument: str) -> Login:
    """The login of ``--auth KIND ARGUMENT``. Raises ConfigError."""
    if kind == "header":
        return Header(argument)
    if kind not in ("basic", "token"):
        raise ConfigError(f"--auth {kind} {argument}: it is basic FILE, token FILE or header NAME")
    text = _private_text(Path(argument))
    if kind == "token":
        token = text.strip().encode()
        if len(token) < SHORTEST_TOKEN:
            raise ConfigError(f"the token in {argument} has {len(token)} bytes; it needs {SHORTEST_TOKEN} or more")
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
        raise ConfigError(f"{argument} names nobody: it has lines of NAME:PASSWORD")
    return Basic(passwords)


def _private_text(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is no text'}") from None
    if mode & 0o077:
        raise ConfigError(f"{path} holds secrets and can be read by others; chmod 600 it")
    return text

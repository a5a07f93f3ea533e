"""Settings of a registry's client, with the names of Confluent's clients.

================================================= ====================================================================
``url``                                           URLs of one registry, separated by commas; user and password may be
                                                  in them
``basic.auth.user.info``                          ``USER:PASSWORD``
``bearer.auth.token``                             sent as it is
``ssl.ca.location``                               default: what the system trusts
``ssl.certificate.location``, ``ssl.key.location``, ``ssl.key.password``
``timeout``                                       seconds for one request; 10
``max.retries``                                   3
================================================= ====================================================================

A name may begin with ``schema.registry.``. Java's ``…credentials.source`` is accepted if it means the same. Unknown
names are refused, never ignored, and no message contains a secret.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from oncelog.base.suggestions import did_you_mean
from oncelog.schemas.client.errors import RegistryConfigError

if TYPE_CHECKING:
    import ssl

PREFIX: Final = "schema.registry."
_SOURCES: Final = {
    "basic.auth.credentials.source": ("USER_INFO", "URL"),
    "bearer.auth.credentials.source": ("STATIC_TOKEN",),
}
_NAMES: Final = (
    *("url", "basic.auth.user.info", "bearer.auth.token", "timeout", "max.retries"),
    *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"),
    *_SOURCES,
)
_TIMEOUT_S: Final = 10.0
_RETRIES: Final = 3
_MAX_RETRIES: Final = 20
_MAX_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """One registry: its URLs without credentials, and how to log in. Plain values, which can be pickled."""

    urls: tuple[str, ...]
    user: str | None = None
    password: str = field(default="", repr=False)
    token: str | None = field(default=None, repr=False)
    ca_location: str | None = None
    certificate_location: str | None = None
    key_location: str | None = None
    key_password: str = field(default="", repr=False)
    timeout_s: float = _TIMEOUT_S
    retries: int = _RETRIES

    def tls_context(self) -> ssl.SSLContext:
        """The TLS context of connections. Raises RegistryConfigError for unusable files."""
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.ca_location)
        except (OSError, ValueError) as error:
            raise RegistryConfigError(f"ssl.ca.location {self.ca_location}: {_reason(error)}") from None
        if self.certificate_location is not None:
            try:
                # An empty password instead of none, or OpenSSL would ask for it on the terminal.
                context.load_cert_chain(self.certificate_location, self.key_location, self.key_password)
            except (OSError, ValueError) as error:
                text = f"ssl.certificate.location {self.certificate_location}: {_reason(error)}"
                raise RegistryConfigError(text) from None
        return context


def parse_settings(url: str, properties: Mapping[str, str] | None = None) -> RegistrySettings:
    """The settings of the registry at ``url``, or at the ``url`` of ``properties``. Raises RegistryConfigError."""
    given = {name.removeprefix(PREFIX): value for name, value in (properties or {}).items()}
    for name in given:
        if name not in _NAMES:
            raise RegistryConfigError(f"registry setting {name!r} is not known{did_you_mean(name, _NAMES)}")
    for name, accepted in _SOURCES.items():
        if given.get(name, accepted[0]) not in accepted:
            raise RegistryConfigError(f"{name}={given[name]} is not supported; use {' or '.join(accepted)}")
    texts = [text.strip() for text in (url or given.get("url", "")).split(",") if text.strip()]
    if not texts:
        raise RegistryConfigError("the registry has no URL; give one as http://HOST:PORT")
    # A comma in a password leaves a part of it that looks like a URL of its own.
    has_login = any("@" in text for text in texts)
    parsed = [_url(text, is_shown="@" in text or not has_login) for text in texts]
    user, password, token = _login({login for _, login in parsed if login is not None}, given)
    if given.get("ssl.key.location") and not given.get("ssl.certificate.location"):
        raise RegistryConfigError("ssl.key.location is given without ssl.certificate.location")
    return RegistrySettings(
        urls=tuple(url for url, _ in parsed),
        user=user,
        password=password,
        token=token,
        ca_location=given.get("ssl.ca.location"),
        certificate_location=given.get("ssl.certificate.location"),
        key_location=given.get("ssl.key.location"),
        key_password=given.get("ssl.key.password", ""),
        timeout_s=_number(given, "timeout", _TIMEOUT_S, _MAX_TIMEOUT_S),
        retries=int(_number(given, "max.retries", _RETRIES, _MAX_RETRIES)),
    )


def _login(logins: set[tuple[str, str]], given: Mapping[str, str]) -> tuple[str | None, str, str | None]:
    """User, password and token, from the ``logins`` in URLs and from settings."""
    if "basic.auth.user.info" in given:
        logins = {_user_info(given["basic.auth.user.info"])}
    if len(logins) > 1:
        raise RegistryConfigError("the URLs of the registry have different users; give basic.auth.user.info")
    token = given.get("bearer.auth.token")
    if token is not None and logins:
        raise RegistryConfigError("give the registry a user and password or a bearer.auth.token, not both")
    if token is not None and not (token.isascii() and token.isprintable() and token):
        raise RegistryConfigError("bearer.auth.token is empty or has characters other than printable ASCII")
    user, password = logins.pop() if logins else (None, "")
    return user, password, token


def _url(text: str, *, is_shown: bool) -> tuple[str, tuple[str, str] | None]:
    """A URL without its credentials, and these."""
    shown = text.rpartition("@")[2] if is_shown else "…"  # the part before it may hold a password
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise RegistryConfigError(f"the registry's URL {shown!r} is not valid; give it as http://HOST:PORT") from None
    is_plain = text.isascii() and text.isprintable() and " " not in text
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or not is_plain:
        raise RegistryConfigError(
            f"the registry's URL {shown!r} is not valid; give it as http://HOST:PORT or https://…"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    address = host if port is None else f"{host}:{port}"
    login = None if parts.username is None else (unquote(parts.username), unquote(parts.password or ""))
    return f"{parts.scheme}://{address}{parts.path.rstrip('/')}", login


def _user_info(text: str) -> tuple[str, str]:
    user, colon, password = text.partition(":")
    if not colon or not user:
        raise RegistryConfigError("basic.auth.user.info is not USER:PASSWORD")
    return user, password


def _number(given: Mapping[str, str], name: str, default: float, most: float) -> float:
    text = given.get(name, str(default))
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= most or (name == "timeout" and value == 0):
        raise RegistryConfigError(f"{name}={text} is not a number up to {most:g}")
    return value


def _reason(error: Exception) -> str:
    number = getattr(error, "errno", None)
    return os.strerror(number).lower() if number else str(error) or type(error).__name__

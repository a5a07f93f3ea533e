"""Sessions: a signed cookie, and the token that every form of a session carries (CSRF). Pure: time is an argument.

The cookie holds the user, the start time and a random number, from which the form token is derived with the same
secret; the server stores nothing. A foreign page can read neither, so it cannot send a valid form.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import secrets
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

LIFETIME_S: Final = 12 * 3600
MAX_COOKIE_LENGTH: Final = 1024


@dataclass(frozen=True, slots=True)
class Session:
    user: str
    since_s: int
    number: str


def new_session(user: str, now_s: int) -> Session:
    return Session(user, now_s, secrets.token_hex(16))


def cookie_of(session: Session, secret: bytes) -> str:
    text = json.dumps([session.user, session.since_s, session.number], separators=(",", ":")).encode()
    return f"{base64.urlsafe_b64encode(text).decode()}.{_signature(secret, b'session', text)}"


def session_of(cookie: str, secret: bytes, now_s: int) -> Session | None:
    """The session of a cookie; None for a cookie that is expired or not signed by this console."""
    encoded, _, signature = cookie.partition(".")
    if len(cookie) > MAX_COOKIE_LENGTH:
        return None
    try:
        text = base64.b64decode(encoded, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    if not hmac.compare_digest(_signature(secret, b"session", text).encode(), signature.encode()):
        return None
    user, since_s, number = json.loads(text)
    return Session(user, since_s, number) if 0 <= now_s - since_s < LIFETIME_S else None


def form_token(session: Session, secret: bytes) -> str:
    return _signature(secret, b"form", session.number.encode())


def is_form_token(token: str, session: Session, secret: bytes) -> bool:
    return hmac.compare_digest(form_token(session, secret).encode(), token.encode())


def _signature(secret: bytes, use: bytes, text: bytes) -> str:
    return hmac.new(secret, use + b"\0" + text, sha256).hexdigest()

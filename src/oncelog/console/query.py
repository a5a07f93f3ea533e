"""Parameters of an address, validated with bounds. BadQuery says which values are allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.client.errors import ClientError

MAX_PARAMETER_LENGTH: Final = 1000
INT64_MAX: Final = 2**63 - 1


class BadQuery(Exception):
    """A parameter is invalid; ``status`` is the HTTP status of the response."""

    status = 400


class NotConfirmed(ClientError):
    """The subject of a change has changed since it was shown."""


class Mistyped(NotConfirmed):
    """The typed name is another."""


class Query:
    """The parameters of one request. Of a repeated name the last value counts, except in ``all``."""

    def __init__(self, values: Mapping[str, str], repeated: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self.values = dict(values)
        self._repeated = repeated or {}

    def all(self, name: str) -> tuple[str, ...]:
        # Of a form: check boxes repeat their name.
        return self._repeated.get(name, ())

    def text(self, name: str, default: str = "") -> str:
        """A text of at most ``MAX_PARAMETER_LENGTH`` characters."""
        text = self.values.get(name, default)
        if len(text) > MAX_PARAMETER_LENGTH:
            raise BadQuery(f"{name} has {len(text)} characters; the maximum is {MAX_PARAMETER_LENGTH}")
        return text

    def long(self, name: str, most: int) -> str:
        text = self.values.get(name, "")
        if len(text) > most:
            raise BadQuery(f"{name} has {len(text)} characters; the maximum is {most}")
        return text

    def needed(self, name: str) -> str:
        text = self.text(name)
        if not text:
            raise BadQuery(f"the address needs the parameter {name}=…")
        return text

    def number(self, name: str, default: int, lowest: int = 0, highest: int = INT64_MAX) -> int:
        value = self.optional_number(name, lowest, highest)
        return default if value is None else value

    def optional_number(self, name: str, lowest: int = 0, highest: int = INT64_MAX) -> int | None:
        """An integer within bounds; None if it is missing."""
        text = self.text(name).strip()
        if not text:
            return None
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
            raise BadQuery(f"{name}={text!r} is not a whole number")
        if not lowest <= int(text) <= highest:
            raise BadQuery(f"{name}={text} is not between {lowest} and {highest}")
        return int(text)

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        text = self.text(name) or choices[0]
        if text not in choices:
            raise BadQuery(f"{name}={text!r} is not one of {', '.join(choices)}")
        return text

    def flag(self, name: str) -> bool:
        return self.text(name) in ("1", "true", "on", "yes")

"""Parameters of an address, read with bounds. Raises BadQuery, whose text says what would be right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.client.errors import ClientError

LONGEST: Final = 1000
INT64_MAX: Final = 2**63 - 1


class BadQuery(Exception):
    """A parameter that cannot be; ``status`` is the HTTP status that says so."""

    status = 400


class NotConfirmed(ClientError):
    """The name that was typed is not that of what is to be changed, or it has become another one since."""


class Query:
    """The parameters of one request; the last one of a name counts, but for ``all``."""

    def __init__(self, values: Mapping[str, str], repeated: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self.values = dict(values)
        self._repeated = repeated or {}

    def all(self, name: str) -> tuple[str, ...]:
        """All texts of a name in a form."""
        return self._repeated.get(name, ())

    def text(self, name: str, default: str = "") -> str:
        """A text, at most ``LONGEST`` characters."""
        found = self.values.get(name, default)
        if len(found) > LONGEST:
            raise BadQuery(f"{name} has {len(found)} characters; {LONGEST} are the most")
        return found

    def long(self, name: str, most: int) -> str:
        """A text of a form that may be longer."""
        found = self.values.get(name, "")
        if len(found) > most:
            raise BadQuery(f"{name} has {len(found)} characters; {most} are the most")
        return found

    def needed(self, name: str) -> str:
        """A text that must be there."""
        found = self.text(name)
        if not found:
            raise BadQuery(f"the address lacks {name}=…")
        return found

    def number(self, name: str, default: int, lowest: int = 0, highest: int = INT64_MAX) -> int:
        """A whole number within bounds."""
        found = self.optional_number(name, lowest, highest)
        return default if found is None else found

    def optional_number(self, name: str, lowest: int = 0, highest: int = INT64_MAX) -> int | None:
        """A whole number within bounds, None where there is none."""
        text = self.text(name).strip()
        if not text:
            return None
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
            raise BadQuery(f"{name}={text!r} is not a whole number")
        if not lowest <= int(text) <= highest:
            raise BadQuery(f"{name}={text} is not from {lowest} to {highest}")
        return int(text)

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of a few words, by default the first."""
        found = self.text(name) or choices[0]
        if found not in choices:
            raise BadQuery(f"{name}={found!r} is none of {', '.join(choices)}")
        return found

    def flag(self, name: str) -> bool:
        """True for ``name=1`` and its like."""
        return self.text(name) in ("1", "true", "on", "yes")

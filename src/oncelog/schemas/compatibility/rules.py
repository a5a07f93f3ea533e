"""Rules of compatibility: each is one difference of two schemas, and whether readers survive it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MAX_PARTS: Final = 200
"""Parts of a path; the rest of a deeper one is left out."""
_MAX_SHOWN: Final = 1000


@dataclass(frozen=True, slots=True)
class Rule:
    """``name`` is what a registry reports as ``errorType``. ``text`` describes a difference: ``{path}`` is its place,
    ``{info}`` a detail; ``{reader}`` and ``{writer}`` are "new" and "old" or the reverse."""

    name: str
    citation: str
    text: str


def deeper(path: tuple[str, ...], parts: Sequence[str]) -> tuple[str, ...]:
    """The path of a part. Bounded: each of many differences has one."""
    return path if len(path) >= MAX_PARTS else (*path, *parts)


def shown(text: str) -> str:
    """The text, or the beginning of a long one: names come from anybody, and are in many messages."""
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


@dataclass(frozen=True, slots=True)
class Difference:
    rule: Rule
    path: str
    info: str | None = None

    def describe(self, reader: str, writer: str) -> str:
        text = self.rule.text.format(path=self.path, info=self.info, reader=reader, writer=writer)
        if self.info is None:
            return f'{{errorType:"{self.rule.name}", description:"{text}"}}'
        return f"{{errorType:'{self.rule.name}', description:'{text}', additionalInfo:'{self.info}'}}"

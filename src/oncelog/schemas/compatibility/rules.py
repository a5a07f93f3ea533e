"""Rules of compatibility: each is one difference of two schemas, and whether readers survive it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """``name`` is what a registry reports as ``errorType``. ``text`` describes a difference: ``{path}`` is its place,
    ``{info}`` a detail; ``{reader}`` and ``{writer}`` are "new" and "old" or the reverse."""

    name: str
    citation: str
    text: str


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

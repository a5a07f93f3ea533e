"""Parses JAAS lines, ``module required name="value" …;``, like Apache Kafka's ``JaasConfig``.

Words are letters, digits and ``. - _ $``; values may be in quotes of either kind, with Java's escapes; ``//``, ``/``
and ``/* */`` begin comments. No error contains any part of the line, because it has passwords.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_SKIPPED: Final = re.compile(r"(?:\s+|/\*.*?\*/|/(?!\*)[^\r\n]*)+", re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z0-9._$\u00a0-\U0010ffff-]+")
_NUMBER: Final = re.compile(r"-?\.?[0-9]")
_QUOTED: Final = re.compile(r""""((?:[^"\\\r\n]|\\.)*)"|'((?:[^'\\\r\n]|\\.)*)'""")
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasError(Exception):
    """The message has the reason and does not quote the line."""


@dataclass(frozen=True, slots=True)
class JaasModule:
    name: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]


def parse_jaas(text: str) -> JaasModule:
    """Parse exactly one module. Raises JaasError."""
    tokens = _Tokens(text)
    name = tokens.word("a login module")
    if tokens.word("a control flag").lower() not in _FLAGS:
        raise JaasError(f"the control flag must be one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    while not tokens.takes(";"):
        key = tokens.word("an option or a semicolon")
        if not tokens.takes("="):
            raise JaasError('an option has no value: write key="value"')
        options[key] = tokens.value()
    if not tokens.at_end():
        raise JaasError("there is more than one login module")
    return JaasModule(name, options)


class _Tokens:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._skip()

    def at_end(self) -> bool:
        return self._position == len(self._text)

    def takes(self, character: str) -> bool:
        """Consume a character if it is the next one. Returns True if so."""
        if not self._text.startswith(character, self._position):
            return False
        self._position += 1
        self._skip()
        return True

    def word(self, element: str) -> str:
        return self._take(_WORD.match(self._text, self._position), element)

    def value(self) -> str:
        quoted = _QUOTED.match(self._text, self._position)
        if quoted is not None:
            self._take(quoted, "")
            return _ESCAPE.sub(_unescaped, quoted[1] if quoted[1] is not None else quoted[2])
        # Java's tokenizer would read a number and fail.
        if _NUMBER.match(self._text, self._position):
            raise JaasError("a value that begins with a digit must be in quotes")
        return self._take(_WORD.match(self._text, self._position), "the value of an option")

    def _take(self, match: re.Match[str] | None, element: str) -> str:
        if match is None:
            raise JaasError(f"expected {element}")
        self._position = match.end()
        self._skip()
        return match[0]

    def _skip(self) -> None:
        match = _SKIPPED.match(self._text, self._position)
        if match is not None:
            self._position = match.end()


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPED.get(code, code)

"""JSON as text that keeps its tokens: digits of numbers, order and duplicate names are those of the input.

Python's floats and dicts would change them (``12345678901234567.89``, ``1e400``, ``{"a":1,"a":2}``). The standard
library validates a text before it is split. Functions raise ValueError for text that is not JSON by RFC 8259 (``NaN``
is not), and RecursionError for text nested too deep.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
_DEEPEST_INDENT: Final = 40
_OPENING: Final = frozenset("{[")
_CLOSING: Final = frozenset("}]")


class Number(str):
    __slots__ = ()


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=_refuse)


def check(text: str) -> Any:
    """Parse a text, with each number a ``Number``. Raises ValueError, RecursionError."""
    return _DECODER.decode(text)


def compacted(text: str) -> str:
    """A JSON text without spaces between its tokens."""
    check(text)
    return "".join(_TOKEN.findall(text))


def indented(text: str, spaces: int = 2) -> str:
    """A JSON text with one line for each member; escaped printable characters are unescaped."""
    check(text)
    return "".join(_indented(text, spaces))


def members(text: str) -> dict[str, str]:
    """The members of a validated JSON object, each as compact JSON text; the last of equal names wins."""
    parts = iter(_parts(text))
    texts: dict[str, str] = {}
    for name in parts:
        texts[json.loads(name[0])] = "".join(next(parts))
    return texts


def elements(text: str) -> list[str]:
    """The elements of a validated JSON array, each as compact JSON text."""
    return ["".join(tokens) for tokens in _parts(text)]


def _parts(text: str) -> Iterator[list[str]]:
    """The tokens between the commas and colons of the outermost object or array."""
    depth = 0
    part: list[str] = []
    for token in _TOKEN.findall(text):
        depth -= token in _CLOSING
        if depth == 1 and token in (",", ":"):
            yield part
            part = []
        elif depth >= 1:
            part.append(token)
        depth += token in _OPENING
    if part:
        yield part


def _indented(text: str, spaces: int) -> Iterator[str]:
    depth, before = 0, ""
    for token in _TOKEN.findall(text):
        # An empty object or array stays on one line.
        if token in _CLOSING:
            depth -= 1
            if before not in _OPENING:
                yield _line(depth, spaces)
        elif before in _OPENING or before == ",":
            yield _line(depth, spaces)
        yield ": " if token == ":" else _readable(token) if token[0] == '"' else token
        depth += token in _OPENING
        before = token


def _line(depth: int, spaces: int) -> str:
    # The indent is capped: a text of a thousand levels would grow a thousandfold.
    return "\n" + " " * (min(depth, _DEEPEST_INDENT) * spaces)


def _readable(token: str) -> str:
    """A string without unnecessary escapes; unchanged if it has unprintable characters."""
    if "\\" not in token:
        return token
    text = json.loads(token)
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else token

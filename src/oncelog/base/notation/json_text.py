"""JSON as text that keeps its tokens: digits of numbers, order and equal names of objects are those of the input.

Python's floats and dicts would change them (``12345678901234567.89``, ``1e400``, ``{"a":1,"a":2}``). The functions here
check a text once with the standard library, and cut it into tokens then. They raise ValueError for anything that is not
JSON by RFC 8259 (``NaN`` is not), and RecursionError for what is nested too deep for the check.
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
    """A number as it is written."""

    __slots__ = ()


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=_refuse)


def check(text: str) -> Any:
    """The value of a text, with each number a ``Number``. Raises ValueError, RecursionError."""
    return _DECODER.decode(text)


def compacted(text: str) -> str:
    """A JSON text without the spaces between its tokens."""
    check(text)
    return "".join(_TOKEN.findall(text))


def indented(text: str, spaces: int = 2) -> str:
    """A JSON text, a line for each member. Escapes of printable characters are shown as the characters."""
    check(text)
    return "".join(_indented(text, spaces))


def members(text: str) -> dict[str, str]:
    """The members of a JSON object, each as compact JSON text; of equal names the last. The text was checked."""
    parts = iter(_parts(text))
    found: dict[str, str] = {}
    for name in parts:
        found[json.loads(name[0])] = "".join(next(parts))
    return found


def elements(text: str) -> list[str]:
    """The elements of a JSON array, each as compact JSON text. The text was checked."""
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
    # Deeper members are not indented further: a text of a thousand levels would become a thousand times as large.
    return "\n" + " " * (min(depth, _DEEPEST_INDENT) * spaces)


def _readable(token: str) -> str:
    """A string without escapes that are not needed; as it is if it has others than printable characters."""
    if "\\" not in token:
        return token
    text = json.loads(token)
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else token

"""A strict JSON parser: one document of RFC 8259, whole, or NotJson with the reason.

Python's own scanner does the work, with everything refused that it tolerates: ``NaN`` and ``Infinity``, the same name
twice in an object, half a surrogate pair, and anything behind the document. Numbers keep what was written: an integer
is an ``int``, any other number a ``Number``, which is its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from json import JSONDecodeError, JSONDecoder, JSONEncoder
from typing import Any, Final, NoReturn

_WHITESPACE: Final = " \t\n\r"
_MAYBE_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_MINUS_ZERO: Final = re.compile(r"-0(?![.eE\d])")
_LONG_INTEGER: Final = 400
"""Digits of an integer that is kept as text: no column has as many."""
_LONGEST_NAME: Final = 80


class NotJson(ValueError):
    """The text is not one JSON document; the message says why."""


class Number(str):
    """A JSON number as it was written; an integer is an ``int``, but for ``-0`` and those of very many digits."""

    __slots__ = ()


def parse(text: str) -> Any:
    """The document that ``text`` is. Raises NotJson."""
    body = text.strip(_WHITESPACE)
    try:
        value, end = _read(body)
    except JSONDecodeError as error:
        raise NotJson(f"{error.msg[:1].lower()}{error.msg[1:]} at character {error.pos + 1}") from None
    except RecursionError:
        raise NotJson("it is nested too deeply") from None
    if end != len(body):
        raise NotJson(f"something follows the document at character {end + 1}")
    if _MAYBE_SURROGATE.search(body) is not None:
        _check_encodable(value)
    return value


def text_of(value: Any) -> str:
    """The document as JSON text without spaces; numbers as they were written. Raises NotJson."""
    out: list[str] = []
    try:
        _write(value, out)
    except RecursionError:
        raise NotJson("it is nested too deeply") from None
    return "".join(out)


def _read(body: str) -> tuple[Any, int]:
    if "-0" in body and _MINUS_ZERO.search(body) is not None:
        return _decode_odd_integers(body)
    try:
        return _decode(body)
    except (JSONDecodeError, NotJson):
        raise
    except ValueError:  # an integer of more digits than Python converts
        return _decode_odd_integers(body)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        left = iter(fields)
        twice = next(name for name, _ in pairs if name != next(left, None))
        raise NotJson(f"the name {twice[:_LONGEST_NAME]!r} is twice in one object")
    return fields


def _refuse_constant(name: str) -> NoReturn:
    raise NotJson(f"{name} is not a JSON number")


def _decoder(parse_int: Callable[[str], Any] | None) -> Callable[[str], tuple[Any, int]]:
    return JSONDecoder(
        object_pairs_hook=_object, parse_float=Number, parse_int=parse_int, parse_constant=_refuse_constant
    ).raw_decode


def _odd_integer(text: str) -> int | Number:
    return int(text) if len(text) < _LONG_INTEGER and text != "-0" else Number(text)


_decode: Final = _decoder(None)
_decode_odd_integers: Final = _decoder(_odd_integer)
_quoted: Final = JSONEncoder(ensure_ascii=False).encode


def _check_encodable(value: Any) -> None:
    try:
        text_of(value).encode()
    except UnicodeEncodeError:
        raise NotJson("half of a surrogate pair is not a character") from None


def _write(value: Any, out: list[str]) -> None:
    """Append the parts of a document's text."""
    if type(value) is dict:
        mark = "{"
        for name, inside in value.items():
            out += (mark, _quoted(name), ":")
            _write(inside, out)
            mark = ","
        out.append("}" if value else "{}")
    elif type(value) is list:
        mark = "["
        for inside in value:
            out.append(mark)
            _write(inside, out)
            mark = ","
        out.append("]" if value else "[]")
    elif type(value) is str:
        out.append(_quoted(value))
    elif type(value) is bool:
        out.append("true" if value else "false")
    else:
        out.append("null" if value is None else str(value))

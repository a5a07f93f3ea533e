"""A strict JSON parser: returns one complete RFC 8259 document, or raises NotJson with the reason.

Python's scanner tolerates ``NaN`` and ``Infinity``, duplicate names, unpaired surrogates, and text after the document;
this module rejects them. Numbers keep their spelling: a ``Number`` is any that is not an ``int``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from json import JSONDecodeError, JSONDecoder, JSONEncoder
from typing import Any, Final, NoReturn

_WHITESPACE: Final = " \t\n\r"
_MAYBE_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_MINUS_ZERO: Final = re.compile(r"-0(?![.eE\d])")
# No column type has this many digits, so a longer integer stays text.
_LONG_INTEGER: Final = 400
_LONGEST_NAME: Final = 80


class NotJson(ValueError):
    """The text is not one JSON document; the message says why."""


class Number(str):
    """The text of a JSON number that is not an ``int``: a fraction, ``-0``, or an integer with very many digits."""

    __slots__ = ()


def parse(text: str) -> Any:
    """Parse a document. Raises NotJson."""
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
    """Write a document as JSON without spaces; numbers keep their spelling. Raises NotJson."""
    out: list[str] = []
    try:
        _write(value, out)
    except RecursionError:
        raise NotJson("it is nested too deeply") from None
    return "".join(out)


def _read(body: str) -> tuple[Any, int]:
    if "-0" in body and _MINUS_ZERO.search(body) is not None:
        return _decode_unusual_integers(body)
    try:
        return _decode(body)
    except (JSONDecodeError, NotJson):
        raise
    except ValueError:  # more digits than Python converts
        return _decode_unusual_integers(body)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        unique_names = iter(fields)
        duplicate = next(name for name, _ in pairs if name != next(unique_names, None))
        raise NotJson(f"the name {duplicate[:_LONGEST_NAME]!r} is twice in one object")
    return fields


def _reject_constant(name: str) -> NoReturn:
    raise NotJson(f"{name} is not a JSON number")


def _decoder(parse_int: Callable[[str], Any] | None) -> Callable[[str], tuple[Any, int]]:
    return JSONDecoder(
        object_pairs_hook=_object, parse_float=Number, parse_int=parse_int, parse_constant=_reject_constant
    ).raw_decode


def _unusual_integer(text: str) -> int | Number:
    return int(text) if len(text) < _LONG_INTEGER and text != "-0" else Number(text)


_decode: Final = _decoder(None)
_decode_unusual_integers: Final = _decoder(_unusual_integer)
_quoted: Final = JSONEncoder(ensure_ascii=False).encode


def _check_encodable(value: Any) -> None:
    try:
        text_of(value).encode()
    except UnicodeEncodeError:
        raise NotJson("half of a surrogate pair is not a character") from None


def _write(value: Any, out: list[str]) -> None:
    if type(value) is dict:
        separator = "{"
        for name, item in value.items():
            out += (separator, _quoted(name), ":")
            _write(item, out)
            separator = ","
        out.append("}" if value else "{}")
    elif type(value) is list:
        separator = "["
        for item in value:
            out.append(separator)
            _write(item, out)
            separator = ","
        out.append("]" if value else "[]")
    elif type(value) is str:
        out.append(_quoted(value))
    elif type(value) is bool:
        out.append("true" if value else "false")
    else:
        out.append("null" if value is None else str(value))

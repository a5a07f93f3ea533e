"""Java's properties format, as ``java.util.Properties`` reads it.

Lines end with CR, LF or both. A line that ends with an unescaped backslash continues on the next one, without that
line's leading blanks. Blanks are space, tab and form feed.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

from oncelog.base.notation.visible_text import utf16_escapes

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_BLANKS: Final = " \t\f"
_KEY: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}
_WRITTEN: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
_SPECIAL: Final = re.compile(r"[^\x20-\x5b\x5d-\x7e]+")
_FIRST: Final = re.compile(r"^ ")
_IN_KEY: Final = re.compile(r"[ =:#!]")
_LONE_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")


class PropertiesError(ValueError):
    """A text that ``java.util.Properties`` rejects, or a lone surrogate. The message contains no value."""


def decode_properties(data: bytes) -> str:
    """Decode a file: UTF-8, or else ISO 8859-1."""
    try:
        # Java reads every file as ISO 8859-1, but people write UTF-8.
        return data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values in file order; the last of equal keys wins. Raises PropertiesError."""
    values: dict[str, str] = {}
    logical, first_line = "", 1
    lines = _LINE_END.split(text)
    for number, natural_line in enumerate(lines, 1):
        line = natural_line.lstrip(_BLANKS)
        if not logical:
            first_line = number
            if line[:1] in ("", "#", "!"):
                continue  # a comment is not continued
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2
        logical += line[:-1] if is_continued else line
        if is_continued and number < len(lines):
            continue
        if logical:  # Java sometimes makes an empty key of a lone backslash at the end of a file
            key, value = _split(logical, first_line)
            values[key] = value
        logical = ""
    return values


def escape_value(text: str) -> str:
    """A value in ASCII that ``parse_properties`` and Java read back."""
    return _FIRST.sub(r"\\\g<0>", _escape(text))


def escape_key(text: str) -> str:
    """A key in ASCII that ``parse_properties`` and Java read back."""
    return _IN_KEY.sub(r"\\\g<0>", _escape(text))


def _escape(text: str) -> str:
    return _SPECIAL.sub(lambda special: "".join(map(_escaped, special[0])), text)


def _escaped(character: str) -> str:
    return _WRITTEN.get(character) or utf16_escapes(character)


def _split(logical: str, number: int) -> tuple[str, str]:
    """Split at the first ``=``, ``:`` or blank without a backslash before it."""
    match = _KEY.match(logical)
    assert match is not None  # every part of the pattern may be empty
    return _unescape(match[1], number), _unescape(logical[match.end() :], number)


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text

    def meaning(escape: re.Match[str]) -> str:
        escaped = escape[1]
        if len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise PropertiesError(f"line {number}: \\u needs four hexadecimal digits")
        return _CONTROL.get(escaped, escaped)

    # Java writes a character beyond U+FFFF as its two UTF-16 surrogates.
    halves = _ESCAPE.sub(meaning, text).encode("utf-16-le", "surrogatepass")
    unescaped = halves.decode("utf-16-le", "surrogatepass")
    if _LONE_SURROGATE.search(unescaped):
        raise PropertiesError(f"line {number}: half a character: \\ud800 to \\udfff come in pairs")
    return unescaped

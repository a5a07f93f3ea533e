"""Text that peers chose, made safe to show on a terminal or in a line of a log.

The rule: a character that ``str.isprintable`` refuses is written as Python writes it in a string (``\\n``, ``\\x1b``,
``\\x9b``, ``\\u202e``, ``\\udc80``). Such are control characters, those that reorder or hide text, line separators and
halves of surrogate pairs. All others stay as they are, in any script. A backslash is not doubled: exact names are in
the JSON, where the same characters are written with JSON's escapes.
"""

from __future__ import annotations

import re
from typing import Final

_NOT_ASCII: Final = re.compile(r"[^\x00-\x7e]+")


def visible(text: str) -> str:
    """One line of text without characters that act on a terminal."""
    return text if text.isprintable() else "".join(map(_visible, text))


def visible_lines(text: str) -> str:
    """:func:`visible` for each line of a text that has several; tabs stay, too."""
    return "\n".join(visible(line) if line.isprintable() else _with_tabs(line) for line in text.split("\n"))


def visible_json(document: str) -> str:
    """A JSON document of the same value, in which such characters are escaped.

    Line ends stay: inside strings JSON has escaped them, and outside of strings they are layout.
    """
    if document.isascii() and "\x7f" not in document:
        return document
    return _NOT_ASCII.sub(_visible_run, document)


def utf16_escapes(character: str) -> str:
    """A character as Java and JSON escape it: ``\\uXXXX``, twice for one beyond U+FFFF."""
    digits = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{digits[at : at + 4]}" for at in range(0, len(digits), 4))


def _visible(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]


def _with_tabs(line: str) -> str:
    return "\t".join(map(visible, line.split("\t")))


def _visible_run(run: re.Match[str]) -> str:
    if run[0].isprintable():
        return run[0]
    return "".join(one if one.isprintable() else utf16_escapes(one) for one in run[0])

r"""Text that peers chose, made safe to show on a terminal or in a line of a log.

The rule: a character that ``str.isprintable`` rejects is written as a Python escape (``\\n``, ``\\x1b``, ``\\x9b``,
``\\u202e``, ``\\udc80``): control characters, characters that reorder or hide text, line separators and lone
surrogates. All others stay, in any script. A backslash is not doubled; JSON output has the exact names, with the same
characters in JSON's escapes.
"""

from __future__ import annotations

import re
from typing import Final

_NOT_ASCII: Final = re.compile(r"[^\x00-\x7e]+")


def visible(text: str) -> str:
    """One line of text without characters that control a terminal."""
    return text if text.isprintable() else "".join(map(_visible, text))


def visible_lines(text: str) -> str:
    """:func:`visible` for each line of a text; tabs stay too."""
    return "\n".join(visible(line) if line.isprintable() else _with_tabs(line) for line in text.split("\n"))


def visible_json(document: str) -> str:
    """An equal JSON document with unprintable characters escaped; line ends stay."""
    # The common case, without a search.
    if document.isascii() and "\x7f" not in document:
        return document
    # Inside strings JSON has escaped line ends already; outside they are layout.
    return _NOT_ASCII.sub(_visible_run, document)


def utf16_escapes(character: str) -> str:
    r"""A character as Java and JSON escape it: ``\\uXXXX``, a pair for one beyond U+FFFF."""
    digits = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{digits[at : at + 4]}" for at in range(0, len(digits), 4))


def _visible(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]


def _with_tabs(line: str) -> str:
    return "\t".join(map(visible, line.split("\t")))


def _visible_run(run: re.Match[str]) -> str:
    if run[0].isprintable():
        return run[0]
    return "".join(character if character.isprintable() else utf16_escapes(character) for character in run[0])

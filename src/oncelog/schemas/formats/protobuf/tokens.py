"""Tokens of a `.proto` file, read one at a time, so that a long file costs no list of them."""

from __future__ import annotations

import re
from typing import Final, NoReturn

from oncelog.schemas.schema import SchemaError

_BLANK: Final = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_TOKEN: Final = re.compile(
    r"""(?P<number>(?:0[xX][0-9a-fA-F]+|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?))
      |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
      |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      |(?P<sign>[{}()\[\]<>=;:,.+\-/])""",
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\(?:[xX]([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")
_SHORT: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
END: Final = "end"


class Tokens:
    """``text`` is the token ahead, ``kind`` what it is: number, name, string, sign or end."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self.kind = END
        self.text = ""
        self.advance()

    def advance(self) -> str:
        """The token ahead; moves to the next one."""
        taken = self.text
        blank = _BLANK.match(self._source, self._at)
        self._at = blank.end() if blank else self._at
        token = _TOKEN.match(self._source, self._at)
        if token is None:
            if self._at < len(self._source):
                self.text = self._source[self._at]
                self.fail("a name, a number, a string or a sign")
            self.kind, self.text = END, ""
            return taken
        self.kind, self.text = str(token.lastgroup), token.group()
        self._at = token.end()
        return taken

    def fail(self, expected: str) -> NoReturn:
        line = self._source.count("\n", 0, self._at) + 1
        ahead = self.text[:60] or "the end of the file"
        raise SchemaError(f"line {line} of the .proto text: expected {expected}, found {ahead!r}")

    def take(self, text: str) -> bool:
        """True if the token ahead is ``text``, which is then consumed."""
        if self.text != text or self.kind == "string":
            return False
        self.advance()
        return True

    def expect(self, text: str) -> None:
        if not self.take(text):
            self.fail(repr(text))

    def name(self, expected: str = "a name") -> str:
        if self.kind != "name":
            self.fail(expected)
        return self.advance()

    def dotted_name(self) -> str:
        """A name in parts, perhaps with a leading dot."""
        parts = ["."] if self.take(".") else []
        parts.append(self.name("the name of a type"))
        while self.take("."):
            parts += [".", self.name("a part of a name")]
        return "".join(parts)

    def integer(self) -> int:
        sign = -1 if self.take("-") else 1
        if self.kind != "number" or not re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20}", self.text):
            self.fail("an integer")
        text = self.advance()
        octal = len(text) > 1 and text.isdigit() and text[0] == "0"
        try:
            return sign * int(text, 8 if octal else 0)
        except ValueError:
            self.fail("an integer")

    def string(self) -> str:
        """A string and those that follow it directly, joined; escaped bytes that are no ASCII are surrogates."""
        if self.kind != "string":
            self.fail("a string")
        parts = []
        while self.kind == "string":
            parts.append(_ESCAPE.sub(_unescape, self.advance()[1:-1]))
        return "".join(parts)


def _unescape(match: re.Match[str]) -> str:
    hexadecimal, octal, short_unicode, long_unicode, character = match.groups()
    if character is not None:
        return _SHORT.get(character, character)
    if short_unicode or long_unicode:
        code = int(short_unicode or long_unicode, 16)
        return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"
    byte = (int(octal, 8) if octal else int(hexadecimal, 16)) & 0xFF
    return bytes([byte]).decode("utf-8", "surrogateescape")

"""Texts of properties files, drawn by seed, and what ``java.util.Properties`` of Java 17 makes of them.

``python -m tests.conformance.properties.corpus`` records ``corpus.txt`` anew.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

CORPUS: Final = Path(__file__).with_name("corpus.txt")
_JAVA: Final = Path(__file__).with_name("LoadProperties.java")
_PIECES: Final = [
    *"abk=: \t\f\\\n\r#!",
    *("\r\n", "\\", "\\\n", "\\\r\n", "\\\r", "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\\u12", "\\u00G0", "\\uuuuu"),
    *("\\n", "\\r", "\\t", "\\f", "\\q", "\\=", "\\ ", "\\#", "\\U0041", "u0041"),
    *("\x85", "\u2028", "\u2029", "\x0b", "\x1c", "\x1d", "\x1e", "\u00a0", "\u3000", "\0", "é", "😀", "\ufeff"),
]


class Loaded(NamedTuple):
    """A text, and its properties; None where Java refuses it."""

    text: str
    values: dict[str, str] | None


def draw(seed: int, count: int) -> list[str]:
    """Texts that are mostly special characters."""
    chance = random.Random(seed)
    return ["".join(chance.choices(_PIECES, k=chance.randrange(24))) for _ in range(count)]


def load_in_java(texts: Iterable[str]) -> str:
    """The lines that ``LoadProperties`` prints."""
    given = "".join(f"{_digits(text)}\n" for text in texts)
    done = subprocess.run(["java", str(_JAVA)], input=given, capture_output=True, text=True, check=True)
    return done.stdout


def read(lines: str) -> Iterator[Loaded]:
    """The texts and their properties in the lines of ``load_in_java`` say."""
    for line in lines.splitlines():
        text, _, loaded = line.partition("|")
        pairs = [pair.split("=") for pair in loaded.split(" ") if "=" in pair]
        values = {_text(key): _text(value) for key, value in pairs}
        yield Loaded(_text(text), None if loaded == "refused" else values)


def _digits(text: str) -> str:
    return text.encode("utf-16-be", "surrogatepass").hex()


def _text(digits: str) -> str:
    return bytes.fromhex(digits).decode("utf-16-be", "surrogatepass")


if __name__ == "__main__":
    CORPUS.write_text(load_in_java(draw(seed=1, count=600)), encoding="ascii")

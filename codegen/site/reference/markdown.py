"""Texts of the code as Markdown: docstrings, cells of tables, and Apache Kafka's HTML."""

from __future__ import annotations

import html
import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Final

_ROLE: Final = re.compile(r":\w+:`~?([^`]+)`")
_CODE: Final = re.compile(r"(`+[^`]+`+)")
_SESSION: Final = re.compile(r"(?:^>>> .*(?:\n(?:\.\.\.|>>>) ?.*)*)", re.MULTILINE)
_CODE_TAG: Final = re.compile(r"</?code>")
_TAG: Final = re.compile(r"</?[a-zA-Z][^>]*>")


def of_docstring(text: str | None) -> str:
    """A docstring: roles become code, examples of an interpreter blocks; nothing is taken for HTML or emphasis."""
    clean = _ROLE.sub(r"`\1`", inspect.cleandoc(text or ""))
    parts: list[str] = []
    position = 0
    for session in _SESSION.finditer(clean):
        parts += [_escaped(clean[position : session.start()]), f"```pycon\n{session[0]}\n```"]
        position = session.end()
    return "\n".join([*parts, _escaped(clean[position:])]).strip()


def _escaped(text: str) -> str:
    pieces = _CODE.split(text)
    return "".join(piece if piece.startswith("`") else re.sub(r"([<*\[])", r"\\\1", piece) for piece in pieces)


def of_html(text: str) -> str:
    """Apache Kafka's documentation of a key: code stays code, other tags go."""
    return html.unescape(_TAG.sub(" ", _CODE_TAG.sub("`", text))).replace("``", "`")


def code(text: str) -> str:
    """A text as code, within a table or without."""
    return f"`{text}`" if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown on one line."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")

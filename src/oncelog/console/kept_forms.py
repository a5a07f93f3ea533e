"""A page with a form again after the form failed: with the reason on top, and with what was typed.

Hidden fields keep what the new page has: its plan and its token. So do passwords and files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import unescape
from typing import Final

from markupsafe import Markup, escape

_HEADING: Final = re.compile(r'<div class="head">.*?</div>|<h1\b.*?</h1>', re.DOTALL)
_FORM: Final = re.compile(r"<form\b[^>]*>.*?</form>", re.DOTALL)
_INPUT: Final = re.compile(r"<input\b[^>]*>")
_TEXT: Final = re.compile(r"(<textarea\b[^>]*>)(.*?)(?=</textarea>)", re.DOTALL)
_CHOICE: Final = re.compile(r"<select\b[^>]*>.*?</select>", re.DOTALL)
_OPTION: Final = re.compile(r"<option\b([^>]*)>([^<]*)")
_UNTOUCHED: Final = frozenset({"hidden", "password", "file", "submit"})
Fields = Mapping[str, Sequence[str]]


def below_heading(html: str, notice: str) -> str:
    return _HEADING.sub(lambda heading: heading[0] + "\n" + notice, html, count=1)


def refilled(html: str, action: str, fields: Fields) -> str:
    """The page with ``fields`` in its form for the path ``action``; unchanged if it has none."""

    def fill(form: re.Match[str]) -> str:
        opening = form[0].partition(">")[0]
        if (_attribute(opening, "action") or "").partition("?")[0] != action:
            return form[0]
        text = _INPUT.sub(lambda tag: _input(tag[0], fields), form[0])
        text = _TEXT.sub(lambda area: _area(area, fields), text)
        return _CHOICE.sub(lambda choice: _select(choice[0], fields), text)

    return _FORM.sub(fill, html)


def _attribute(tag: str, name: str) -> str | None:
    match = re.search(rf'\s{name}="([^"]*)"', tag)
    return None if match is None else unescape(match[1])


def _input(tag: str, fields: Fields) -> str:
    name, kind = _attribute(tag, "name"), _attribute(tag, "type") or "text"
    if name is None or kind in _UNTOUCHED:
        return tag
    if kind in ("checkbox", "radio"):
        is_checked = (_attribute(tag, "value") or "on") in fields.get(name, ())
        return re.sub(r"\schecked\b", "", tag).replace("<input", "<input checked" if is_checked else "<input", 1)
    if name not in fields:
        return tag
    bare = re.sub(r'\svalue="[^"]*"', "", tag)
    return bare.replace("<input", Markup('<input value="{}"').format(fields[name][-1]), 1)


def _area(area: re.Match[str], fields: Fields) -> str:
    name = _attribute(area[1], "name")
    # A browser drops one line break after the tag.
    return area[1] + "\n" + str(escape(fields[name][-1])) if name in fields and name is not None else area[0]


def _select(text: str, fields: Fields) -> str:
    name = _attribute(text.partition(">")[0], "name")
    if name is None or name not in fields:
        return text

    def choose(option: re.Match[str]) -> str:
        value = _attribute(" " + option[1], "value")
        is_chosen = (unescape(option[2]) if value is None else value) == fields[name][-1]
        attributes = re.sub(r"\sselected\b", "", option[1]) + (" selected" if is_chosen else "")
        return f"<option{attributes}>{option[2]}"

    return _OPTION.sub(choose, text)

"""HTML rendering: Jinja templates with autoescaping, and the filters they use.

No text of the cluster becomes markup, a link outside this console, or a character that reorders text: invisible and
bidirectional control characters are shown by their codes.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.base.notation.shell_words import argument, option

_CONTROL_PICTURES: Final = 0x2400
_KEPT: Final = "\n\t"
_PIECE: Final = 16 * 1024
ROWS_A_PAGE: Final = 100
MAX_COLOURED_LENGTH: Final = 128 * 1024
_JSON_TOKEN: Final = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*")(?P<colon>\s*:)?|(?P<number>-?\d[\d.eE+-]*)|(?P<constant>true|false|null)'
)
MAX_LINKED_NAMES: Final = 500


def shown(value: object, keep_lines: bool = False) -> str:
    """Text with its invisible characters made visible; None is a dash."""
    if value is None:
        return "–"
    text = str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(_piece_shown(text[at : at + _PIECE], keep_lines) for at in range(0, len(text), _PIECE))


def _piece_shown(text: str, keep_lines: bool) -> str:
    """One piece of a text, to bound memory: each character is an object of 80 bytes meanwhile."""
    return "".join(_shown(char) if not (keep_lines and char in _KEPT) else char for char in text)


def _shown(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x20:
        return chr(_CONTROL_PICTURES + code)
    if unicodedata.category(char) == "Zs":
        return " "
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def linked(text: str, names: Mapping[str, str], prefix: str = "") -> Markup:
    """A sentence in which the names that stand for themselves are links to their addresses."""
    if not names:
        return escape(shown(text))
    listed = sorted(names, key=len, reverse=True)[:MAX_LINKED_NAMES]
    pattern = re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, listed))})(?![\w-])")
    pieces = pattern.split(text)
    return Markup("").join(
        Markup('<a href="{}">{}</a>').format(prefix + names[piece], shown(piece)) if index % 2 else escape(shown(piece))
        for index, piece in enumerate(pieces)
    )


def coloured(text: object) -> Markup:
    """JSON with its names, strings, numbers and constants told apart; a long text as it is."""
    if not isinstance(text, str) or len(text) > MAX_COLOURED_LENGTH:
        return escape(shown(text, keep_lines=True))
    pieces, at = [], 0
    for match in _JSON_TOKEN.finditer(text):
        kind = "name" if match["colon"] is not None else match.lastgroup
        token = match["string"] or match[0]
        pieces.append(escape(shown(text[at : match.start()], keep_lines=True)))
        pieces.append(Markup('<span class="json-{}">{}</span>').format(kind, shown(token, keep_lines=True)))
        at = match.start() + len(token)
    return Markup("").join([*pieces, escape(shown(text[at:], keep_lines=True))])


def number(value: int | None) -> str:
    """An integer with thousands separators; None is a dash."""
    return "–" if value is None else f"{value:,}"


def about(value: int) -> str:
    for limit, unit in ((10**9, "G"), (10**6, "M"), (10**4, "k")):
        if value >= limit:
            return f"{value / (1000 if unit == 'k' else limit):.1f} {unit}"
    return number(value)


def per_second(value: float) -> str:
    """A rate; small rates keep their decimals."""
    return f"{about(round(value))}/s" if value >= 10 else f"{value:.2g}/s"


def size(value: int | None) -> str:
    if value is None:
        return "–"
    scaled = float(value)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(scaled) < 1024 or unit == "TiB":
            return f"{value} B" if unit == "B" else f"{scaled:.1f} {unit}"
        scaled /= 1024
    raise AssertionError("unreachable")


def address(path: str, **parameters: object) -> str:
    """An address of a page of a cluster. Parameters that are None or empty are omitted; zero is not. In templates it
    begins with the cluster's prefix."""
    texts = {name.rstrip("_"): "" if value is None else str(value) for name, value in parameters.items()}
    present = {name: text for name, text in texts.items() if text}
    return f"{path}?{urlencode(present)}" if present else path


def json_address(own: str) -> str:
    path, question, parameters = own.partition("?")
    return f"{path}.json{question}{parameters}"


def duration(milliseconds: int | None) -> str:
    """A duration in words; None is a dash."""
    return "–" if milliseconds is None else duration_text(milliseconds)


def moment(milliseconds: int | None) -> str:
    """A time in UTC; None and times before 1970 are a dash."""
    return "–" if milliseconds is None or milliseconds < 0 else moment_text(milliseconds)


def iso(milliseconds: int) -> str:
    # For the attribute ``datetime``; empty if the time is beyond the calendar.
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return ""


def instant(milliseconds: int) -> Markup:
    """A time in UTC with its milliseconds, to which the page's script adds the reader's local time."""
    if milliseconds < 0:
        return Markup("–")
    try:
        moment_ = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return escape(moment(milliseconds))
    text = moment_.isoformat(" ", "milliseconds").removesuffix("+00:00")
    return Markup('<time datetime="{}Z">{}</time>').format(text.replace(" ", "T"), text)


def one_page(rows: Sequence[Any], page: int) -> dict[str, Any]:
    """The rows of one page (counted from 1), with its number and the totals."""
    pages = max(1, -(-len(rows) // ROWS_A_PAGE))
    page = min(page, pages)
    return {
        "rows": list(rows[(page - 1) * ROWS_A_PAGE : page * ROWS_A_PAGE]),
        "page": page,
        "pages": pages,
        "total": len(rows),
    }


def environment(prefix: str = "", **shared: Callable[..., object] | object) -> Environment:
    """The templates of a cluster, whose addresses begin with ``prefix``."""

    def own_address(path: str, **parameters: object) -> str:
        return prefix + address(path, **parameters)

    def own_linked(text: str, names: Mapping[str, str]) -> Markup:
        return linked(text, names, prefix)

    environment_ = Environment(
        loader=PackageLoader("oncelog.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment_.filters |= {
        "shown": shown,
        "spelled": json.dumps,
        "linked": own_linked,
        "coloured": coloured,
        "instant": instant,
        "number": number,
        "about": about,
        "per_second": per_second,
        "size": size,
        "duration": duration,
        "moment": moment,
        "iso": iso,
    }
    environment_.globals |= {"option": option, "argument": argument}
    environment_.globals |= {"address": own_address, "json_address": json_address, "prefix": prefix, **shared}
    return environment_

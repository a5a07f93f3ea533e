"""Checks the links of the built site without a network: each file and each anchor within it is there.

Links to other hosts are listed, not followed. Anything that a browser would load from another host is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_LOADED: Final = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
_NOT_LOADED: Final = frozenset({"canonical", "search", "index", "next", "prev", "author", "copyright"})
"""Kinds of ``<link>`` that a browser does not load."""


class Document(HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag names and what it leads to."""
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(value for name, value in values.items() if name == "id" or (tag, name) == ("a", "name"))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag in _LOADED and _LOADED[tag] in values and values.get("rel") not in _NOT_LOADED:
            self.loaded.append(values[_LOADED[tag]])


def documents(site: Path) -> dict[Path, Document]:
    """All pages of a site."""
    return {path.resolve(): Document(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}


def broken(pages: dict[Path, Document]) -> Iterator[str]:
    """One line for each link or picture of a page that leads nowhere, and for each that another host would have."""
    for path, document in pages.items():
        for link in document.links:
            if not _is_external(link) and (reason := _problem(link, path, pages)):
                yield f"{path.name}: {link}: {reason}"
        for link in document.loaded:
            if _is_external(link):
                yield f"{path.name}: {link}: is loaded from another host"
            elif reason := _problem(link, path, pages):
                yield f"{path.name}: {link}: {reason}"


def external(pages: dict[Path, Document]) -> list[str]:
    """The links to other hosts, each once."""
    return sorted({link for document in pages.values() for link in document.links if _is_external(link)})


def _is_external(link: str) -> bool:
    return bool(urlsplit(link).scheme or urlsplit(link).netloc) and not link.startswith("data:")


def _problem(link: str, path: Path, pages: dict[Path, Document]) -> str | None:
    if link.startswith("data:"):
        return None
    parts = urlsplit(link)
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_file():
        return "no such file in the site"
    anchor = unquote(parts.fragment)
    if anchor and target in pages and anchor not in pages[target].anchors:
        return "no such anchor on that page"
    return None

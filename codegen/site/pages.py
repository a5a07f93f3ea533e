"""The pages of the site: their sources in this repository, their places in the site, and the order of the menu.

``docs/index.md`` is the menu: each of its headings is a part of the site, and the links below a heading are its pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
REPOSITORY: Final = "https://github.com/oncelog/oncelog"
INDEX: Final = PurePosixPath("index.md")
_OUTSIDE: Final = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages outside ``docs/``, and their places in the site."""
_LINK: Final = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\])\((?!\w+:)([^)\s]+)\)")
_FENCE: Final = re.compile(r"^ *```.*?^ *```[^\n]*$", re.DOTALL | re.MULTILINE)
_HEADING: Final = re.compile(r"^#+ (.*)$", re.MULTILINE)


class Part(NamedTuple):
    """A part of the menu."""

    title: str
    pages: list[PurePosixPath]


def sources() -> dict[PurePosixPath, Path]:
    """The file of each page and picture, by its place in the site."""
    docs = ROOT / "docs"
    files = (path for path in sorted(docs.rglob("*")) if path.suffix in (".md", ".svg", ".png"))
    places = {PurePosixPath(path.relative_to(docs).as_posix()): path for path in files}
    return places | {PurePosixPath(place): ROOT / name for name, place in _OUTSIDE.items()}


def title_of(text: str) -> str:
    """The first heading of a page, without its code marks."""
    heading = _HEADING.search(text)
    if heading is None:
        raise ValueError("a page of the site needs a heading: begin it with a line '# Title'")
    return heading[1].replace("`", "")


def outside_fences(text: str) -> Iterator[tuple[str, bool]]:
    """The pieces of a page in their order; True for prose, False for a block of code."""
    position = 0
    for fence in _FENCE.finditer(text):
        yield text[position : fence.start()], True
        yield fence[0], False
        position = fence.end()
    yield text[position:], True


def with_site_links(text: str, source: Path, place: PurePosixPath) -> str:
    """A page with the links that hold at its place in the site; those to other files lead to the repository."""

    def replaced(match: re.Match[str]) -> str:
        return f"{match[1]}({_site_link(match[2], source, place)})"

    return "".join(_LINK.sub(replaced, piece) if is_prose else piece for piece, is_prose in outside_fences(text))


def _site_link(link: str, source: Path, place: PurePosixPath) -> str:
    path, mark, anchor = link.partition("#")
    if not path:
        return link
    file = (source.parent / path).resolve()
    if file == ROOT / "README.md":
        return _relative(INDEX, place)
    if file == ROOT / "docs" / "adr":
        return _relative(PurePosixPath("adr/index.md"), place)  # the list of decisions, which only the site has
    target = next((other for other, candidate in sources().items() if candidate == file), None)
    if target is not None:
        return f"{_relative(target, place)}{mark}{anchor}"
    kind = "tree" if file.is_dir() else "blob"
    return f"{REPOSITORY}/{kind}/main/{file.relative_to(ROOT).as_posix()}{mark}{anchor}"


def _relative(target: PurePosixPath, place: PurePosixPath) -> str:
    return (PurePosixPath(*[".."] * (len(place.parts) - 1)) / target).as_posix()


def menu(index: str) -> list[Part]:
    """The parts of the menu, by the headings and links of the index."""
    parts: list[Part] = []
    for line in index.splitlines():
        if line.startswith("## "):
            parts.append(Part(line[3:], []))
        elif parts:
            links = (link for _, link in _LINK.findall(line))
            parts[-1].pages.extend(PurePosixPath(link) for link in links if link.endswith(".md"))
    return parts

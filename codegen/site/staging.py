"""The directory that Sphinx reads: pages with links of the site, generated pages, and menus.

The rule: a page of ``docs/`` is copied as it is, apart from its links; whatever only the site has is added here.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from codegen.site import pages, reference
from codegen.site.pages import INDEX, ROOT, Part

DECISIONS: Final = PurePosixPath("adr/index.md")
_ARCHITECTURE: Final = PurePosixPath("ARCHITECTURE.md")
_SYMPTOMS: Final = PurePosixPath("troubleshooting.md")
_CAUSES: Final = "reference/causes.md"


def stage(directory: Path) -> list[Part]:
    """Write everything that Sphinx reads into a directory, which is emptied first. Returns the menu."""
    shutil.rmtree(directory, ignore_errors=True)
    for place, source in pages.sources().items():
        (directory / place).parent.mkdir(parents=True, exist_ok=True)
        if place.suffix == ".md":
            text = pages.with_site_links(source.read_text("utf-8"), source, place)
            (directory / place).write_text(_with_causes(text) if place == _SYMPTOMS else text, "utf-8")
        else:
            shutil.copyfile(source, directory / place)
    generated = reference.generated_pages() | {DECISIONS: _decisions()}
    for place, text in generated.items():
        (directory / place).parent.mkdir(parents=True, exist_ok=True)
        (directory / place).write_text(text, "utf-8")
    return _write_menus(directory, list(generated))


def _with_causes(text: str) -> str:
    """The page of symptoms with each cause linked to its meaning."""
    names = "|".join(map(re.escape, reference.cause_names()))
    return re.sub(rf"(?<!\[)`({names})`", rf"[`\1`]({_CAUSES}#\1)", text)


def _decisions() -> str:
    """The list of decisions, by the titles of their pages."""
    records = sorted((ROOT / "docs" / "adr").glob("*.md"))
    lines = [f"- [{pages.title_of(path.read_text('utf-8'))}]({path.name})" for path in records]
    return "\n".join(["# Decisions", "", "Each page is a decision with its reasons.", "", *lines])


def _write_menus(directory: Path, generated: Iterable[PurePosixPath]) -> list[Part]:
    """Add a menu to each page that has pages below it. Returns the menu of the first page."""
    index = (directory / INDEX).read_text("utf-8")
    top = [place for place in generated if place.parent == reference.FOLDER]
    index = index.replace("\n## Explanation", f"\n{_linked(directory, top)}\n\n## Explanation")
    parts = pages.menu(index)
    below = {
        _ARCHITECTURE: _within("internals", (page for part in parts for page in part.pages)),
        DECISIONS: _within("adr", pages.sources()),
        reference.FOLDER / "commands.md": _within("reference/commands", generated),
        reference.FOLDER / "python.md": _within("reference/python", generated),
    }
    for place, children in below.items():
        _append(directory / place, _toctree(f"/{child}" for child in children))
    nested = {child for children in below.values() for child in children}
    menus = (_toctree((page for page in part.pages if page not in nested), f":caption: {part.title}") for part in parts)
    (directory / INDEX).write_text("\n\n".join([index, *menus]), "utf-8")
    return parts


def _linked(directory: Path, places: Iterable[PurePosixPath]) -> str:
    titles = {place: pages.title_of((directory / place).read_text("utf-8")) for place in places}
    return "\n".join(f"- [{title}]({place})" for place, title in titles.items())


def _within(folder: str, places: Iterable[PurePosixPath]) -> list[PurePosixPath]:
    return [place for place in places if str(place.parent) == folder and place != DECISIONS and place.suffix == ".md"]


def _toctree(places: Iterable[object], *options: str) -> str:
    return "\n".join(["```{toctree}", ":hidden:", ":maxdepth: 1", *options, "", *map(str, places), "```"])


def _append(page: Path, text: str) -> None:
    page.write_text(f"{page.read_text('utf-8').rstrip()}\n\n{text}\n", "utf-8")

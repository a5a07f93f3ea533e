"""Files, modules and links that the documentation names are there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.checks.rooms import ROOT, SOURCE, contracts

PAGES: Final = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/internals/*.md"))
    if path.name != "CHANGELOG.md"
)
_TOP: Final = ("bench", "codegen", "demo", "docs", "src", "tests")
_LINK: Final = re.compile(r"\]\((?!\w+:)([^)#\s]+)[^)]*\)")
_CODE: Final = re.compile(r"`([^`\s]+)`")
_RUN: Final = re.compile(r"python -m ([a-z_.]+)")


def missing(text: str, page: Path) -> Iterator[str]:
    """The names in a page that stand for nothing in this repository."""
    rooms = "|".join({row.partition(".")[0] for row in contracts()["oncelog"]})
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (link for link in _LINK.findall(prose) if not (page.parent / link).exists())
    folders = "|".join({path.name for path in SOURCE.rglob("*") if path.is_dir() and path.parent != SOURCE})
    kinds: list[tuple[str, Callable[[str], bool]]] = [
        (rf"(?:{'|'.join(_TOP)})/[\w./-]+", lambda name: _is_there(ROOT / name)),
        (rf"(?:{rooms})/[a-z_0-9/]+(?:\.py)?", lambda name: _is_there(SOURCE / name)),
        (rf"(?!(?:{'|'.join(_TOP)}|{rooms})/)(?:{folders})/[a-z_/]+(?:\.py)?", _is_within_a_room),
        (rf"oncelog\.(?:{rooms})\.[\w.]+", _is_module_or_name),
    ]
    for name in _CODE.findall(text):
        yield from (name for shape, is_known in kinds if re.fullmatch(shape, name) and not is_known(name))
    for module in _RUN.findall(text):
        if module.partition(".")[0] in _TOP and not _is_there(ROOT / module.replace(".", "/")):
            yield f"python -m {module}"


def _is_there(path: Path) -> bool:
    return path.exists() or path.with_suffix(".py").exists()


def _is_within_a_room(name: str) -> bool:
    """True for a path that a page names without its room: `requests/dispatch`."""
    return any(_is_there(folder / name) for folder in SOURCE.rglob("*") if folder.is_dir())


def _is_module_or_name(name: str) -> bool:
    """True for a module, and for a name within one."""
    path = SOURCE.parent / name.replace(".", "/")
    parents = (path, path.parent, path.parent.parent)
    return any(_is_there(parent) for parent in parents if parent != SOURCE)


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page: str) -> None:
    path = ROOT / page
    assert list(missing(path.read_text("utf-8"), path)) == []


def test_names_of_nothing_are_found() -> None:
    code = "`src/oncelog/nothing.py` `storage/log/nothing` `log/nothing` `oncelog.client.nothing.at.all`"
    assert len(list(missing(f"[a](nowhere.md) {code} python -m tests.nothing", ROOT / "README.md"))) == 6
    code = "`tests/checks` `storage/log/append` `log/append` `oncelog.client.errors.ClientError` `a/b`"
    assert list(missing(f"[a](docs/jobs.md#x) {code} python -m bench", ROOT / "README.md")) == []

"""Files, modules and links that the documentation names are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
    rooms = "|".join(contracts()["oncelog"])
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (link for link in _LINK.findall(prose) if not (page.parent / link).exists())
    for name in _CODE.findall(text):
        if re.fullmatch(rf"(?:{'|'.join(_TOP)})/[\w./-]+", name) and not _is_there(ROOT / name):
            yield name
        elif re.fullmatch(rf"(?:{rooms})/[a-z_0-9/]+(?:\.py)?", name) and not _is_there(SOURCE / name):
            yield name
        elif re.fullmatch(rf"oncelog\.(?:{rooms})\.[\w.]+", name) and not _is_module_or_name(name):
            yield name
    for module in _RUN.findall(text):
        if module.partition(".")[0] in _TOP and not _is_there(ROOT / module.replace(".", "/")):
            yield f"python -m {module}"


def _is_there(path: Path) -> bool:
    return path.exists() or path.with_suffix(".py").exists()


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
    wrong = "[a](nowhere.md) `src/oncelog/nothing.py` `storage/log/nothing` `oncelog.client.nothing.at.all` python -m tests.nothing"
    assert len(list(missing(wrong, ROOT / "README.md"))) == 5
    right = "[a](docs/jobs.md#x) `tests/checks` `storage/log/append` `oncelog.client.errors.ClientError` `a/b` python -m bench"
    assert list(missing(right, ROOT / "README.md")) == []

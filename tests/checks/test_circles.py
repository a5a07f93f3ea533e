"""The check for circles of imports: what it finds in planted sources and what it lets pass."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.checks.circles import circles, imports, modules

PLAIN: Final = {"p/__init__.py": "", "p/a.py": "import json\nfrom p.b import thing\n", "p/b.py": "thing = 1\n"}


def _found(directory: Path, sources: dict[str, str]) -> list[list[str]]:
    for name, text in sources.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return circles(imports(modules(directory)))


def test_imports_in_one_direction_pass(tmp_path: Path) -> None:
    assert _found(tmp_path, PLAIN) == []


def test_a_planted_circle_is_found_though_it_is_for_types_only(tmp_path: Path) -> None:
    late = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import other\nthing = 1\n"
    assert _found(tmp_path, PLAIN | {"p/b.py": late}) == [["p.a", "p.b"]]


def test_an_import_inside_a_function_counts(tmp_path: Path) -> None:
    inner = "thing = 1\ndef late():\n    import p.a\n"
    assert _found(tmp_path, PLAIN | {"p/b.py": inner}) == [["p.a", "p.b"]]


def test_a_circle_through_a_package_names_all_its_modules(tmp_path: Path) -> None:
    sources = {"p/__init__.py": "from p.a import x\n", "p/a.py": "from p import b\n", "p/b.py": "from p import y\n"}
    assert _found(tmp_path, sources) == [["p", "p.a", "p.b"]]

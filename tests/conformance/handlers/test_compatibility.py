"""The page that says what is spoken says what the registry and the handlers say."""

from __future__ import annotations

from codegen.compatibility import DOCUMENT, with_generated


def test_the_generated_part_is_current() -> None:
    document = DOCUMENT.read_text()
    assert with_generated(document) == document, "run `python -m codegen.compatibility`"

"""The page that says what is spoken says what the registry and the handlers say."""

from __future__ import annotations

from codegen import config_documentation
from codegen.compatibility import DOCUMENT, with_generated


def test_the_generated_part_is_current() -> None:
    document = DOCUMENT.read_text()
    assert with_generated(document) == document, "run `python -m codegen.compatibility`"


def test_the_documentation_of_configs_is_what_was_recorded() -> None:
    assert config_documentation.generated() == config_documentation.MODULE.read_text("utf-8"), (
        "run `python -m codegen.config_documentation`"
    )

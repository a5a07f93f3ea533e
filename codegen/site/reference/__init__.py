"""Pages that are generated from the code, by their places in the site."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from codegen.site.reference import causes, commands, configuration, errors, python_api
from codegen.site.reference.causes import cause_names

FOLDER: Final = PurePosixPath("reference")

__all__ = ["FOLDER", "cause_names", "generated_pages"]


def generated_pages() -> dict[PurePosixPath, str]:
    """The text of each generated page."""
    named = {
        "commands.md": commands.overview(),
        **{f"commands/{name}.md": text for name, text in commands.pages()},
        "python.md": python_api.overview(),
        **{f"python/{name}.md": text for name, text in python_api.pages()},
        "configuration.md": configuration.page(),
        "errors.md": errors.page(),
        "causes.md": causes.page(),
    }
    return {FOLDER / name: text for name, text in named.items()}

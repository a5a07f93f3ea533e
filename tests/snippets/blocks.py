"""The blocks of code of a page, with the comments that say how they are tested."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = tuple(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
)
RUN: Final = ("sh", "console", "python")
"""Languages of blocks that are run."""
SHOWN: Final = ("text", "properties", "dockerfile", "yaml", "ini")
"""Languages of blocks that only show something: drawings, outputs, files."""
_BLOCK: Final = re.compile(
    r"(?:^ *<!-- (?P<marker>(?:not run|run by): [^\n]*?) -->\n)?"
    r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<text>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    """A block of a page: the line of its fence, and the comment above it, or an empty text."""

    page: str
    line: int
    language: str
    text: str
    marker: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def tested_by(self) -> str:
        """The test that runs it, if another file does."""
        return self.marker.removeprefix("run by: ") if self.marker.startswith("run by: ") else ""

    @property
    def is_run_here(self) -> bool:
        return self.language in RUN and not self.marker


@cache
def blocks_of(page: str) -> tuple[Block, ...]:
    """The blocks of a page, in their order."""
    return tuple(_blocks(page, (ROOT / page).read_text("utf-8")))


def _blocks(page: str, text: str) -> Iterator[Block]:
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("indent")) + 1
        code = textwrap.dedent(match["text"])
        yield Block(page, line, match["language"], code, match["marker"] or "")


def problems(block: Block) -> Iterator[str]:
    """Reasons why a block is neither run nor says why not."""
    if block.language not in (*RUN, *SHOWN):
        yield f"{block.place}: language {block.language!r}: name one of {', '.join((*RUN, *SHOWN))}"
    if block.marker and block.language in SHOWN:
        yield f"{block.place}: {block.language} is not run anyway: remove the comment {block.marker!r}"
    if block.marker.startswith("not run: ") and len(block.marker.split()) < 5:
        yield f"{block.place}: {block.marker!r} gives no reason: say in a few words what is missing here"
    if block.tested_by:
        file = ROOT / block.tested_by
        if not file.is_file() or Path(block.page).name not in file.read_text("utf-8"):
            yield f"{block.place}: {block.tested_by} does not exist, or does not name {Path(block.page).name}"

"""``llms.txt``: the pages of the site for programs that read Markdown, one link and one sentence each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from codegen.site.pages import INDEX, Part, title_of

_SENTENCE: Final = re.compile(r"(?<=[.!?])\s")
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")
NAME: Final = "llms.txt"


def write(staged: Path, site: Path, parts: Iterable[Part]) -> None:
    """Write the file, and the Markdown of each page that it names beside the page."""
    lines = ["# oncelog", "", f"> {summary((staged / INDEX).read_text('utf-8'))}"]
    for part in parts:
        lines += ["", f"## {part.title}", ""]
        for place in part.pages:
            text = (staged / place).read_text("utf-8")
            lines.append(f"- [{title_of(text)}]({place}): {summary(text)}")
            (site / place).write_text(text, "utf-8")
    (site / NAME).write_text("\n".join([*lines, ""]), "utf-8")


def summary(text: str) -> str:
    """The first sentence of a page's prose, without links."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    paragraphs = (" ".join(paragraph.split()) for paragraph in prose.split("\n\n"))
    first = next((paragraph for paragraph in paragraphs if paragraph and paragraph[0] not in "#|<-!"), "")
    return _LINK.sub(r"\1", _SENTENCE.split(first)[0])

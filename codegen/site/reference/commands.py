"""The reference of the command line, from the help of its commands."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, Final

from typer.main import get_command

from codegen.site.reference.markdown import code, table
from oncelog.cli.commands import COMMANDS, app, load_command

_EXAMPLES: Final = "Examples:"


def overview() -> str:
    """The page of all commands."""
    rows = [
        (f"[`oncelog {name}`](commands/{name}.md)", _escaped(command.summary)) for name, command in COMMANDS.items()
    ]
    top = get_command(app)
    return "\n\n".join(["# Commands", *_description(top.help or ""), table(["command", ""], rows)])


def pages() -> Iterator[tuple[str, str]]:
    """Name and text of the page of each command."""
    for name, command in COMMANDS.items():
        loaded = load_command(name, command.target)
        yield name, "\n\n".join(_sections(f"oncelog {name}", loaded, level=1))


def _sections(path: str, command: Any, level: int) -> Iterator[str]:
    yield f"{'#' * min(level, 3)} {path}"
    yield from _description(command.help or "")
    inner = {name: sub for name, sub in getattr(command, "commands", {}).items() if not sub.hidden}
    context = command.context_class(command, info_name=path)
    if not inner:
        usage = " ".join(command.collect_usage_pieces(context))
        yield f"```text\n{path} {usage}\n```"
    yield from _description(inspect.cleandoc(command.epilog or ""))
    records = [(parameter, parameter.get_help_record(context)) for parameter in command.params]
    rows = [(code(names), _escaped(text)) for parameter, (names, text) in filter(lambda item: item[1], records)]
    if rows:
        yield table(["argument or option", "meaning"], rows)
    for name, sub in inner.items():
        yield from _sections(f"{path} {name}", sub, level + 1)


def _description(text: str) -> Iterator[str]:
    """The paragraphs of a help text, its examples as a block of a shell."""
    prose, heading, examples = text.replace("\b\n", "").replace("\b", "").partition(_EXAMPLES)
    if prose.strip():
        yield _escaped(inspect.cleandoc(prose))
    if heading:
        block, _, rest = inspect.cleandoc(examples.lstrip("\n")).partition("\n\n")
        yield f"```sh\n{block}\n```"
        if rest:
            yield _escaped(inspect.cleandoc(rest))


def _escaped(text: str) -> str:
    return re.sub(r"([<*_\[])", r"\\\1", text)

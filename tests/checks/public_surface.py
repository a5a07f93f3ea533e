"""The public surface as text: names with their signatures, commands with their options, metrics with their labels.

`python -m tests.checks.public_surface` writes it anew: the diff of ``public_surface.txt`` is what changes for users.
docs/public-surface.md says what is public.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import sys
import types
import typing
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

from oncelog.cli.commands import COMMANDS, load_command

ROOT: Final = Path(__file__).resolve().parents[2]
RECORD: Final = Path(__file__).with_suffix(".txt")
METRICS: Final = (ROOT / "docs" / "metrics.md", ROOT / "docs" / "hanging-transactions.md")
COMMAND: Final = "python -m tests.checks.public_surface"
MODULES: Final = (
    "oncelog",
    "oncelog.admin.acls",
    "oncelog.admin.client_quotas",
    "oncelog.admin.cluster",
    "oncelog.admin.configs",
    "oncelog.admin.decommission",
    "oncelog.admin.explain.targets",
    "oncelog.admin.explain.whole_cluster",
    "oncelog.admin.groups",
    "oncelog.admin.reassignments",
    "oncelog.admin.scram_users",
    "oncelog.admin.share_deliveries",
    "oncelog.admin.topics",
    "oncelog.admin.transactions",
    "oncelog.admin.zookeeper_groups",
    "oncelog.arrow",
    "oncelog.client.aio",
    "oncelog.client.blocking",
    "oncelog.client.errors",
    "oncelog.client.zookeeper",
    "oncelog.schemas",
    "oncelog.spark",
    "oncelog.spark.reports",
    "oncelog.testing",
)
_INHERITED: Final = frozenset(name for kind in (BaseException, dict, enum.Enum, int, str, tuple) for name in dir(kind))


def surface() -> str:
    """The whole text."""
    parts = [(name, sorted(_module(name))) for name in MODULES]
    parts.append(
        (
            "commands",
            [
                line
                for name in COMMANDS
                for line in _commands(f"oncelog {name}", load_command(name, COMMANDS[name].target))
            ],
        )
    )
    parts.append(("metrics", sorted(f"{name}{{{', '.join(labels)}}}" for name, labels in documented_metrics().items())))
    return "\n".join(f"# {title}\n\n" + "".join(f"{line}\n" for line in lines) for title, lines in parts)


def public_names(module: types.ModuleType) -> list[str]:
    """The names of a public module that programs may use."""
    names: list[str] | None = getattr(module, "__all__", None)
    if names is None:
        return [own for own, value in vars(module).items() if _is_own(own, value, module.__name__)]
    return names


def _module(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    for public in public_names(module):
        yield from _described(public, getattr(module, public))


def _is_own(name: str, value: object, module: str) -> bool:
    if name.startswith("_"):
        return False
    return getattr(value, "__module__", None) == module or (name.isupper() and isinstance(value, (int, str)))


def _described(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, type):
        yield from _class(name, value)
    elif callable(value):
        yield f"{name}{signature(value)}"
    else:
        yield name if isinstance(value, types.ModuleType) else f"{name} = {_shown(value)}"


def _class(name: str, value: type) -> Iterator[str]:
    if issubclass(value, enum.Enum):
        yield from (f"{name}.{member.name} = {_shown(member.value)}" for member in value)
    else:
        yield f"{name}{signature(value)}"
    for member in public_members(value):
        result = getattr(value, member)
        yield f"{name}.{member}{signature(result) if inspect.isroutine(result) else ''}"


def public_members(value: type) -> list[str]:
    """The public methods and attributes of a class, without an enumeration's members and a dataclass's fields."""
    fields: Collection[str] = ()
    if issubclass(value, enum.Enum):
        fields = value.__members__
    elif hasattr(value, "__match_args__"):
        fields = inspect.signature(value).parameters
    return [name for name in dir(value) if not (name.startswith("_") or name in _INHERITED or name in fields)]


def signature(value: Any) -> str:
    """Parameters and result of a function or class, as its source writes them."""
    try:
        actual = inspect.signature(value)
    except ValueError:  # of an exception that has only its message
        return "(*args)"
    shown: list[str] = []
    starred = False
    for parameter in actual.parameters.values():
        if parameter.name in ("self", "cls") and not shown:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
        starred = starred or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        shown.append(_parameter(parameter))
    is_typed = not isinstance(value, type) and actual.return_annotation is not actual.empty
    result = f" -> {_annotation(actual.return_annotation)}" if is_typed else ""
    return f"({', '.join(shown)}){result}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = stars + parameter.name
    if parameter.annotation is not parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    return text if parameter.default is parameter.empty else f"{text} = {_shown(parameter.default)}"


def _annotation(annotation: object) -> str:
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", text.replace("'", ""))


def _shown(value: object) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, (types.FunctionType, type)):
        return value.__name__
    return re.sub(r" at 0x[0-9a-f]+|\b(?:\w+\.)+(?=[A-Za-z_]\w*[ (>])", "", repr(value))


def _commands(path: str, command: Any) -> Iterator[str]:
    yield path
    for parameter in command.params:
        if not parameter.hidden and parameter.name != "help":
            yield f"{path} {_parameter_of_command(parameter)}"
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        if not inner.hidden:
            yield from _commands(f"{path} {name}", inner)


def _parameter_of_command(parameter: Any) -> str:
    """An option or argument as typer knows it: its names, type and default."""
    kind = parameter.type_descriptor.annotation
    names = [*parameter.opts, *parameter.secondary_opts]
    words = ["/".join(names) if names[0].startswith("-") else names[0].upper()]
    if isinstance(kind, enum.EnumMeta):
        words.append("|".join(str(member.value) for member in kind))
    elif kind is not bool:
        words.append(_annotation(kind))
    if parameter.required:
        words.append("required")
    elif parameter.default not in (None, False, [], ()) and not callable(parameter.default):
        words.append(f"default {_shown(parameter.default)}")
    return " ".join(words)


def documented_metrics() -> dict[str, list[str]]:
    """The metrics in the tables of the documentation, with their labels."""
    results: dict[str, list[str]] = {}
    for line in (line for page in METRICS for line in page.read_text("utf-8").splitlines()):
        if row := re.match(r"\| (`oncelog_[^|]*)\| ([^|]*)\|", line):
            labels = row[2].replace(",", " ").replace("`", "").split()
            results.update(dict.fromkeys(re.findall(r"`(oncelog_\w+)`", row[1]), labels))
    return results


def main() -> int:
    """Write the record anew."""
    RECORD.write_text(surface(), "utf-8")
    print(f"wrote {RECORD.relative_to(ROOT)}; its diff is what changes for users", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

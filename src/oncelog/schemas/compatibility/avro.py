"""Avro's schema resolution as rules: values of a writer's schema can be read with a reader's.

The rules are those of the specification and of Java's SchemaCompatibility, except for unions. There a value goes to the
branch that its decoder chooses, and decoders choose differently. A branch of the writer's full name is the one; without
it, each branch that may be chosen has to be able to read the value. (fastavro looks at unqualified names alone, so it
cannot read a union that has one such name twice, not even with the schema that the value was written with.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from oncelog.schemas.compatibility.rules import Difference, Rule, deeper, shown
from oncelog.schemas.formats.avro.types import (
    NO_DEFAULT,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Record,
    Union,
)
from oncelog.schemas.schema import SchemaError

_RESOLUTION: Final = "Avro 1.12 specification, Schema Resolution"
TYPE_MISMATCH: Final = Rule(
    "TYPE_MISMATCH",
    f"{_RESOLUTION}: both are the same type, or the writer's is promoted",
    "The type at path '{path}' in the {reader} schema does not match with the one in the {writer} schema",
)
NAME_MISMATCH: Final = Rule(
    "NAME_MISMATCH",
    f"{_RESOLUTION}: records, enums and fixed have the same unqualified name, or an alias of the reader's has it",
    "The name at path '{path}' in the {reader} schema is not the one in the {writer} schema, nor has it as an alias",
)
FIXED_SIZE_MISMATCH: Final = Rule(
    "FIXED_SIZE_MISMATCH",
    f"{_RESOLUTION}: fixed have the same size",
    "The size of the FIXED at path '{path}' in the {reader} schema does not match with the one in the {writer} schema",
)
MISSING_ENUM_SYMBOLS: Final = Rule(
    "MISSING_ENUM_SYMBOLS",
    f"{_RESOLUTION}: the reader's enum has each symbol of the writer's, or a default",
    "The {reader} schema lacks enum symbols '{info}' at path '{path}' that the {writer} schema has",
)
MISSING_UNION_BRANCH: Final = Rule(
    "MISSING_UNION_BRANCH",
    f"{_RESOLUTION}: a branch of the reader's union matches each type of the writer's, and can read its values",
    "The {reader} schema lacks a type for the union at path '{path}' that reads the one in the {writer} schema",
)
READER_FIELD_MISSING_DEFAULT_VALUE: Final = Rule(
    "READER_FIELD_MISSING_DEFAULT_VALUE",
    f"{_RESOLUTION}: a field that only the reader has needs a default",
    "The field '{info}' at path '{path}' in the {reader} schema has no default and is missing in the {writer} schema",
)
READER_FIELD_AMBIGUOUS: Final = Rule(
    "READER_FIELD_AMBIGUOUS",
    "Avro 1.12 specification, Aliases: decoders differ where names and aliases give a field two sources or readers",
    "The field '{info}' at path '{path}' in the {reader} schema matches fields of the {writer} schema more than once",
)
AVRO_RULES: Final = (
    TYPE_MISMATCH,
    NAME_MISMATCH,
    FIXED_SIZE_MISMATCH,
    MISSING_ENUM_SYMBOLS,
    MISSING_UNION_BRANCH,
    READER_FIELD_MISSING_DEFAULT_VALUE,
    READER_FIELD_AMBIGUOUS,
)
PROMOTIONS: Final = frozenset(
    {
        ("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"),
        ("float", "double"), ("string", "bytes"), ("bytes", "string"),
    }
)  # fmt: skip
MAX_PAIRS: Final = 50_000

Pair = tuple[AvroType, AvroType]
Path = tuple[str, ...]


@dataclass(slots=True)
class _Judged:
    """One reader's and one writer's type. ``parts`` have to be compatible; of ``branches`` each, and there is one."""

    errors: list[tuple[Rule, Path, str]] = field(default_factory=list)
    parts: list[tuple[Path, Pair]] = field(default_factory=list)
    branches: list[tuple[Path, list[Pair], str]] = field(default_factory=list)


def avro_differences(reader: AvroType, writer: AvroType) -> list[Difference]:
    """Raises SchemaError if there is too much to compare."""
    judged = _judge_all((reader, writer))
    return list(_report((reader, writer), judged, _incompatible(judged)))


def _key(pair: Pair) -> tuple[int, int]:
    return id(pair[0]), id(pair[1])


def _judge_all(root: Pair) -> dict[tuple[int, int], _Judged]:
    """Judges each pair of types once, however often and recursively it occurs."""
    judged: dict[tuple[int, int], _Judged] = {}
    pending = [root]
    while pending:
        pair = pending.pop()
        key = _key(pair)
        if key in judged:
            continue
        if len(judged) >= MAX_PAIRS:
            raise SchemaError(f"the schemas have more than {MAX_PAIRS} pairs of types to compare; use fewer names")
        result = judged[key] = _judge(*pair)
        pending += [part for _, part in result.parts]
        pending += [branch for _, branches, _ in result.branches for branch in branches]
    return judged


def _incompatible(judged: dict[tuple[int, int], _Judged]) -> set[tuple[int, int]]:
    """Pairs with an error in themselves or in a part. A recursive pair is compatible unless an error is found."""
    users: dict[tuple[int, int], list[tuple[int, int]]] = {}
    pending = []
    for key, result in judged.items():
        if result.errors or any(not branches for _, branches, _ in result.branches):
            pending.append(key)
        for _, part in result.parts:
            users.setdefault(_key(part), []).append(key)
        for _, branches, _ in result.branches:
            for branch in branches:
                users.setdefault(_key(branch), []).append(key)
    incompatible: set[tuple[int, int]] = set()
    while pending:
        key = pending.pop()
        if key not in incompatible:
            incompatible.add(key)
            pending += users.get(key, ())
    return incompatible


def _report(
    root: Pair, judged: dict[tuple[int, int], _Judged], incompatible: set[tuple[int, int]]
) -> Iterator[Difference]:
    """Each pair is reported at its first place."""
    pending: list[tuple[Path, Pair]] = [((), root)]
    reported: set[tuple[int, int]] = set()
    while pending:
        path, pair = pending.pop()
        key = _key(pair)
        if key in reported or key not in incompatible:
            continue
        reported.add(key)
        result = judged[key]
        for rule, place, info in result.errors:
            yield Difference(rule, _shown((*path, *place)), info)
        for place, branches, info in result.branches:
            if not branches or any(_key(branch) in incompatible for branch in branches):
                yield Difference(MISSING_UNION_BRANCH, _shown((*path, *place)), info)
        pending += [(deeper(path, place), part) for place, part in reversed(result.parts)]


def _shown(path: Path) -> str:
    return "/" + "/".join(part.replace("~", "~0").replace("/", "~1") for part in path)


def _judge(reader: AvroType, writer: AvroType) -> _Judged:
    result = _Judged()
    if isinstance(writer, Union):
        for position, branch in enumerate(writer.branches):
            place = (str(position),)
            if isinstance(reader, Union):
                result.branches.append((place, _candidates(reader, branch), _lacking(branch)))
            else:
                result.parts.append((place, (reader, branch)))
    elif isinstance(reader, Union):
        result.branches.append(((), _candidates(reader, writer), _lacking(writer)))
    elif reader.kind != writer.kind:
        if (writer.kind, reader.kind) not in PROMOTIONS:
            info = f"reader type: {reader.kind.upper()} not compatible with writer type: {writer.kind.upper()}"
            result.errors.append((TYPE_MISMATCH, (), info))
    elif isinstance(reader, Array) and isinstance(writer, Array):
        result.parts.append((("items",), (reader.items, writer.items)))
    elif isinstance(reader, Map) and isinstance(writer, Map):
        result.parts.append((("values",), (reader.values, writer.values)))
    elif isinstance(reader, Named) and isinstance(writer, Named):
        _judge_named(reader, writer, result)
    return result


def _lacking(writer: AvroType) -> str:
    return f"reader union lacking writer type: {writer.kind.upper()}"


def _candidates(union: Union, writer: AvroType) -> list[Pair]:
    """Branches that one decoder or another chooses."""
    if not isinstance(writer, Named):
        kinds = [branch for branch in union.branches if not isinstance(branch, Named)]
        return [
            (branch, writer)
            for branch in kinds
            if branch.kind == writer.kind or (writer.kind, branch.kind) in PROMOTIONS
        ]
    named = [branch for branch in union.branches if isinstance(branch, Named) and branch.kind == writer.kind]
    for branch in named:
        if branch.full_name == writer.full_name:
            return [(branch, writer)]
    # Java finds enums and fixed within a union by their full names and aliases alone.
    return [
        (branch, writer)
        for branch in named
        if writer.full_name in branch.aliases
        or (isinstance(branch, Record) and branch.simple_name == writer.simple_name)
    ]


def _judge_named(reader: Named, writer: Named, result: _Judged) -> None:
    if reader.simple_name != writer.simple_name and writer.full_name not in reader.aliases:
        result.errors.append((NAME_MISMATCH, ("name",), shown(f"expected: {writer.full_name}")))
    if isinstance(reader, Fixed) and isinstance(writer, Fixed):
        if reader.size != writer.size:
            info = f"expected: {writer.size}, found: {reader.size}"
            result.errors.append((FIXED_SIZE_MISMATCH, ("size",), info))
    elif isinstance(reader, Enum) and isinstance(writer, Enum):
        missing = sorted(set(writer.symbols) - set(reader.symbols))
        if missing and reader.default is None:
            result.errors.append((MISSING_ENUM_SYMBOLS, ("symbols",), shown(f"[{', '.join(missing)}]")))
    elif isinstance(reader, Record) and isinstance(writer, Record):
        _judge_fields(reader, writer, result)


def _judge_fields(reader: Record, writer: Record, result: _Judged) -> None:
    by_name = {source.name: source for source in writer.fields}
    sources: list[list[Field]] = []
    readers: dict[str, int] = {}
    for reader_field in reader.fields:
        names = dict.fromkeys((reader_field.name, *reader_field.aliases))
        matching = [by_name[name] for name in names if name in by_name]
        sources.append(matching)
        for source in matching:
            readers[source.name] = readers.get(source.name, 0) + 1
    for position, (reader_field, matching) in enumerate(zip(reader.fields, sources, strict=True)):
        place = ("fields", str(position))
        has_default = reader_field.default is not NO_DEFAULT
        if not matching and not has_default:
            result.errors.append((READER_FIELD_MISSING_DEFAULT_VALUE, place, shown(reader_field.name)))
        is_shared = any(readers[source.name] > 1 for source in matching)
        if len(matching) > 1 or (is_shared and not has_default):
            result.errors.append((READER_FIELD_AMBIGUOUS, place, shown(reader_field.name)))
        result.parts += [((*place, "type"), (reader_field.type, source.type)) for source in matching]

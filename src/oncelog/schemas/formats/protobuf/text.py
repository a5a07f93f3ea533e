"""The syntax of a `.proto` file to text, in the layout in which registries store and compare it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from oncelog.schemas.formats.protobuf.syntax import (
    MAX_NUMBER,
    EnumType,
    Extend,
    Field,
    Group,
    Identifier,
    Interval,
    Kind,
    Message,
    Method,
    OneOf,
    Option,
    ProtoFile,
    Service,
    Value,
)

_ESCAPES: Final = str.maketrans(
    {
        "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
        "\\": "\\\\", "'": "\\'", '"': '\\"',
    }
)  # fmt: skip
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\udc80-\udcff]")
Lines = Iterator[str]


def file_text(file: ProtoFile) -> str:
    sections: list[list[str]] = [_head(file)]
    sections.append([f'import "{path}";' for path in file.imports])
    sections[-1] += [f'import public "{path}";' for path in file.public_imports]
    sections.append(list(_option_statements(file.options)))
    types = [declaration for declaration in file.body if isinstance(declaration, Message)]
    sections.append([line for message in types for line in _message(message)])
    enums = [declaration for declaration in file.body if isinstance(declaration, EnumType)]
    sections[-1] += [line for enum in enums for line in _enum(enum)]
    extends = [declaration for declaration in file.body if isinstance(declaration, Extend)]
    sections.append([line for extend in extends for line in _extend(extend)])
    sections.append([line for service in file.services for line in _service(service)])
    head, *others = sections
    text = "".join(f"{line}\n" for line in head)
    return text + "".join("\n" + "".join(f"{line}\n" for line in section) for section in others if section)


def _head(file: ProtoFile) -> list[str]:
    head = []
    if file.edition is not None:
        head.append(f'edition = "{file.edition}";')
    elif file.syntax is not None:
        head.append(f'syntax = "{file.syntax}";')
    if file.package is not None:
        head.append(f"package {file.package};")
    return head


def _block(opening: str, sections: Iterable[Iterable[str]]) -> Lines:
    """Sections are separated by blank lines, which outer blocks indent like any other."""
    yield f"{opening} {{"
    filled = False
    for section in sections:
        for position, line in enumerate(section):
            if not position and filled:
                yield ""
            filled = True
            yield f"  {line}"
    yield "}"


def _message(message: Message, opening: str | None = None) -> Lines:
    sections = [
        (_interval_statement("reserved", statement) for statement in message.reserved),
        _option_statements(message.options),
        (line for field in message.fields for line in _field(field)),
        (line for oneof in message.oneofs for line in _oneof(oneof)),
        (line for declaration in message.body if isinstance(declaration, Group) for line in _group(declaration)),
        (
            line
            for extensions in message.extensions
            for line in _with_options(_interval_statement("extensions", extensions.intervals)[:-1], extensions.options)
        ),
        (line for declaration in message.body if isinstance(declaration, Extend) for line in _extend(declaration)),
        [
            *(line for nested in message.messages for line in _message(nested)),
            *(line for enum in message.enums for line in _enum(enum)),
        ],
    ]
    return _nested(opening or f"message {message.name}", sections)


def _nested(opening: str, sections: Sequence[Iterable[str]]) -> Lines:
    # An empty block is closed in the line that opens it.
    lines = list(_block(opening, sections))
    if len(lines) == 2:
        return iter([f"{opening} {{}}"])
    return iter(lines)


def _group(group: Group) -> Lines:
    label = f"{group.label} " if group.label else ""
    return _message(group.message, f"{label}group {group.message.name} = {group.number}")


def _oneof(oneof: OneOf) -> Lines:
    sections = [
        _option_statements(oneof.options),
        (line for field in oneof.fields if isinstance(field, Field) for line in _field(field)),
        (line for group in oneof.fields if isinstance(group, Group) for line in _group(group)),
    ]
    return _nested(f"oneof {oneof.name}", sections)


def _extend(extend: Extend) -> Lines:
    members = (
        line for member in extend.fields for line in (_field(member) if isinstance(member, Field) else _group(member))
    )
    return _nested(f"extend {extend.extendee}", [members])


def _enum(enum: EnumType) -> Lines:
    def lines() -> Lines:
        for statement in enum.reserved:
            yield _interval_statement("reserved", statement)
        yield from _option_statements(enum.options)
        for value in enum.values:
            yield from _with_options(f"{value.name} = {value.number}", value.options)

    return _nested(f"enum {enum.name}", [lines()])


def _service(service: Service) -> Lines:
    methods = (line for method in service.methods for line in _method(method))
    return _nested(f"service {service.name}", [_option_statements(service.options), methods])


def _method(method: Method) -> Lines:
    request = f"stream {method.request}" if method.request_streams else method.request
    response = f"stream {method.response}" if method.response_streams else method.response
    text = f"rpc {method.name} ({request}) returns ({response})"
    if not method.options:
        yield f"{text};"
        return
    lines = list(_block(text, [_option_statements(method.options)]))
    yield from lines[:-1]
    yield "};"


def _field(field: Field) -> Lines:
    label = f"{field.label} " if field.label else ""
    options = list(field.options)
    if field.default is not None:
        options.append(Option("default", field.default))
    if field.json_name is not None:
        options.append(Option("json_name", Value(Kind.STRING, field.json_name)))
    return _with_options(f"{label}{field.type} {field.name} = {field.number}", options)


def _interval_statement(keyword: str, statement: list[Interval]) -> str:
    return f"{keyword} {', '.join(_interval(interval) for interval in statement)};"


def _interval(interval: Interval) -> str:
    if isinstance(interval, str):
        return interval if isinstance(interval, Identifier) else f'"{interval}"'
    if isinstance(interval, int):
        return str(interval)
    start, end = interval
    return f"{start} to {end if end < MAX_NUMBER else 'max'}"


# Options


def _option_statements(options: list[Option]) -> Lines:
    for option in options:
        first, *others = _option(option)
        lines = [f"option {first}", *others]
        lines[-1] += ";"
        yield from lines


def _with_options(text: str, options: list[Option]) -> Lines:
    """A statement and its options: one in the same line, several in a line each."""
    if not options:
        yield f"{text};"
        return
    written = [list(_option(option)) for option in options]
    yield from _bracketed(f"{text} ", written, ";")


def _bracketed(opening: str, elements: list[list[str]], closing: str = "") -> Lines:
    if len(elements) == 1:
        lines = list(elements[0])
        lines[0] = f"{opening}[{lines[0]}"
        lines[-1] += f"]{closing}"
        yield from lines
        return
    yield f"{opening}["
    yield from _separated(elements)
    yield f"]{closing}"


def _separated(elements: list[list[str]]) -> Lines:
    for position, lines in enumerate(elements, 1):
        yield from (f"  {line}" for line in lines[:-1])
        yield f"  {lines[-1]}{',' if position < len(elements) else ''}"


def _option(option: Option) -> Lines:
    name = f"({option.name})" if option.parenthesized else option.name
    value = option.value
    if value.kind is Kind.OPTION:
        first, *others = _option(value.content)
        yield f"{name}.{first}"
        yield from others
        return
    if value.kind is Kind.LIST:
        yield from _bracketed(f"{name} = ", [list(_value(element)) for element in value.content])
        return
    first, *others = _value(value)
    yield f"{name} = {first}"
    yield from others


def _value(value: Value) -> Lines:
    content: Any = value.content
    if value.kind is Kind.STRING:
        yield f'"{_CONTROL.sub(_octal, content.translate(_ESCAPES))}"'
    elif value.kind is Kind.MAP:
        yield "{"
        yield from _separated([_pair(name, inner) for name, inner in joined_pairs(content)])
        yield "}"
    elif value.kind is Kind.LIST:
        yield "["
        yield from _separated([list(_value(element)) for element in content])
        yield "]"
    else:
        yield str(content)


def _octal(match: re.Match[str]) -> str:
    return f"\\{ord(match[0]) & 0xFF:03o}"


def _pair(name: str, value: Value) -> list[str]:
    first, *others = _value(value)
    return [f"{name}: {first}", *others]


def joined_pairs(pairs: list[tuple[str, Value]]) -> list[tuple[str, Value]]:
    """Values of a repeated name as one list, at its first place."""
    joined: dict[str, Value] = {}
    for name, value in pairs:
        earlier = joined.get(name)
        if earlier is None:
            joined[name] = value
        else:
            values = earlier.content if earlier.kind is Kind.LIST else [earlier]
            added = value.content if value.kind is Kind.LIST else [value]
            joined[name] = Value(Kind.LIST, [*values, *added])
    return list(joined.items())

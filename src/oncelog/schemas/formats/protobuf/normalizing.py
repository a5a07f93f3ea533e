"""The syntax of a `.proto` file with what has no meaning made equal: order, paths of names, spellings of options.

The order of messages has a meaning, as values name a message by its index.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Final

from oncelog.schemas.formats.json_text import utf16
from oncelog.schemas.formats.protobuf.names import Scope
from oncelog.schemas.formats.protobuf.syntax import (
    SCALARS,
    Declaration,
    EnumType,
    Extend,
    Extensions,
    Field,
    Group,
    Interval,
    Kind,
    Message,
    OneOf,
    Option,
    ProtoFile,
    Service,
    Value,
)
from oncelog.schemas.formats.protobuf.text import joined_pairs
from oncelog.schemas.schema import SchemaError

_MAP: Final = re.compile(r"map<([^,]+), (.+)>\Z")
IsRepeated = Callable[[str], bool | None]


def is_map_entry(message: Message) -> bool:
    return any(option.name == "map_entry" and option.value.content == "true" for option in message.options)


class Normalizer:
    """``is_repeated`` tells of an extension's full name whether it is repeated; None if it is unknown."""

    def __init__(self, scope: Scope, is_repeated: IsRepeated) -> None:
        self._scope = scope
        self._is_repeated = is_repeated
        self._map_types: dict[str, str] = {}

    def file(self, file: ProtoFile) -> ProtoFile:
        package = file.package or ""
        self._collect_maps(file.messages, package)
        return ProtoFile(
            syntax=file.syntax if file.syntax == "proto3" else None,
            edition=file.edition,
            package=file.package,
            imports=sorted(set(file.imports), key=utf16),
            public_imports=sorted(set(file.public_imports), key=utf16),
            options=self._options(file.options, package),
            body=self._body(file.body, package),
            services=[self._service(service, package) for service in file.services],
        )

    def _collect_maps(self, messages: Iterable[Message], scope: str) -> None:
        for message in messages:
            full = f"{scope}.{message.name}" if scope else message.name
            if is_map_entry(message):
                parts = {field.name: field.type for field in message.fields}
                self._map_types[full] = f"map<{parts.get('key')}, {parts.get('value')}>"
            self._collect_maps(message.messages, full)

    def _body(self, body: list[Declaration], scope: str) -> list[Declaration]:
        fields = [self._field(field, scope) for field in body if isinstance(field, Field)]
        fields.sort(key=lambda field: field.number)
        oneofs = [self._oneof(oneof, scope) for oneof in body if isinstance(oneof, OneOf) and oneof.fields]
        oneofs.sort(key=lambda oneof: _number(oneof.fields[0]))
        groups = [self._group(group, scope) for group in body if isinstance(group, Group)]
        groups.sort(key=lambda group: group.number)
        types: list[Declaration] = [
            self._message(kind, scope) for kind in body if isinstance(kind, Message) and not is_map_entry(kind)
        ]
        types += [self._enum(kind, scope) for kind in body if isinstance(kind, EnumType)]
        extends: dict[str, Extend] = {}
        for extend in (declaration for declaration in body if isinstance(declaration, Extend)):
            name = f".{self._scope.resolve(extend.extendee, scope)}"
            extends.setdefault(name, Extend(name)).fields.extend(self._members(extend.fields, scope))
        for extend in extends.values():
            extend.fields.sort(key=_number)
        return [*fields, *oneofs, *groups, *extends.values(), *types]

    def _message(self, message: Message, scope: str) -> Message:
        inner = f"{scope}.{message.name}" if scope else message.name
        extensions = [
            Extensions([interval], self._options(statement.options, inner))
            for statement in message.extensions
            for interval in statement.intervals
        ]
        return Message(
            name=message.name,
            reserved=_intervals(message.reserved),
            options=self._options(message.options, inner),
            extensions=sorted(extensions, key=lambda statement: _start(statement.intervals[0])),
            body=self._body(message.body, inner),
        )

    def _members(self, members: Iterable[Field | Group], scope: str) -> list[Field | Group]:
        return [
            self._field(member, scope) if isinstance(member, Field) else self._group(member, scope)
            for member in members
        ]

    def _group(self, group: Group, scope: str) -> Group:
        return replace(group, message=self._message(group.message, scope), options=self._options(group.options, scope))

    def _oneof(self, oneof: OneOf, scope: str) -> OneOf:
        fields = sorted(self._members(oneof.fields, scope), key=_number)
        return OneOf(oneof.name, fields, self._options(oneof.options, scope))

    def _field(self, field: Field, scope: str) -> Field:
        kind, label = field.type, field.label
        if kind not in SCALARS and not _MAP.match(kind):
            kind = f".{self._scope.resolve(kind, scope)}"
            kind = self._map_types.get(kind[1:], kind)
        if (pair := _MAP.match(kind)) is not None:
            label = None
            if pair[2] not in SCALARS:
                kind = f"map<{pair[1]}, .{self._scope.resolve(pair[2], scope)}>"
        options = list(field.options)
        # The text has these among the other options, in the order of names.
        if field.default is not None:
            options.append(Option("default", field.default))
        if field.json_name is not None:
            options.append(Option("json_name", Value(Kind.STRING, field.json_name)))
        return Field(label, kind, field.name, field.number, self._options(options, scope))

    def _enum(self, enum: EnumType, scope: str) -> EnumType:
        values = [replace(value, options=self._options(value.options, scope)) for value in enum.values]
        values.sort(key=lambda value: (value.number, utf16(value.name)))
        return EnumType(enum.name, _intervals(enum.reserved), self._options(enum.options, scope), values)

    def _service(self, service: Service, package: str) -> Service:
        scope = f"{package}.{service.name}" if package else service.name
        methods = [
            replace(
                method,
                request=f".{self._scope.resolve(method.request, scope)}",
                response=f".{self._scope.resolve(method.response, scope)}",
                options=self._options(method.options, scope),
            )
            for method in service.methods
        ]
        return Service(service.name, methods, self._options(service.options, scope))

    # Options

    def _options(self, options: list[Option], scope: str) -> list[Option]:
        normalized = [self._option(option, scope) for option in options]
        normalized.sort(key=lambda option: utf16(option.name))
        merged: list[Option] = []
        for option in normalized:
            last = merged[-1] if merged else None
            if last is None or last.name != option.name or self._is_repeated(option.name) is not False:
                merged.append(option)
            elif last.value.kind is Kind.MAP and option.value.kind is Kind.MAP:
                pairs = joined_pairs([*last.value.content, *option.value.content])
                merged[-1] = replace(option, value=Value(Kind.MAP, _sorted_pairs(pairs)))
            else:
                merged[-1] = option
        return merged

    def _option(self, option: Option, scope: str) -> Option:
        value = option.value
        name = option.name
        if option.parenthesized:
            try:
                name = self._scope.resolve(name, scope, extension=True)
            except SchemaError:
                return option
            value = _path_as_map(value)
        return replace(option, name=name, value=self._value(value, scope))

    def _value(self, value: Value, scope: str) -> Value:
        if value.kind is Kind.NUMBER:
            return Value(Kind.NUMBER, _plain_number(str(value.content)))
        if value.kind is Kind.LIST:
            values = [self._value(element, scope) for element in value.content]
            return Value(Kind.LIST, values)
        if value.kind is Kind.MAP:
            pairs = [
                (self._key(name, scope), self._element(inner, scope)) for name, inner in joined_pairs(value.content)
            ]
            return Value(Kind.MAP, _sorted_pairs(pairs))
        return value

    def _element(self, value: Value, scope: str) -> Value:
        # A list of one element means the same as the element.
        if value.kind is Kind.LIST and len(value.content) == 1:
            return self._value(value.content[0], scope)
        return self._value(value, scope)

    def _key(self, name: str, scope: str) -> str:
        if not name.startswith("["):
            return name
        try:
            return f"[{self._scope.resolve(name[1:-1], scope, extension=True)}]"
        except SchemaError:
            return name


def _sorted_pairs(pairs: list[tuple[str, Value]]) -> list[tuple[str, Value]]:
    kept = [(name, value) for name, value in pairs if value.kind is not Kind.LIST or value.content]
    return sorted(kept, key=lambda pair: utf16(pair[0]))


def _path_as_map(value: Value) -> Value:
    """``(a).b = 1`` as ``(a) = {b: 1}``."""
    if value.kind is not Kind.OPTION:
        return value
    inner: Option = value.content
    name = f"[{inner.name}]" if inner.parenthesized else inner.name
    return Value(Kind.MAP, [(name, _path_as_map(inner.value))])


def _number(member: Field | Group) -> int:
    return member.number


def _start(interval: Interval) -> int:
    if isinstance(interval, tuple):
        return interval[0]
    return interval if isinstance(interval, int) else 2**31 - 1


def _intervals(statements: list[list[Interval]]) -> list[list[Interval]]:
    intervals = [
        interval[0] if isinstance(interval, tuple) and interval[0] == interval[1] else interval
        for statement in statements
        for interval in statement
    ]
    return [[interval] for interval in sorted(intervals, key=lambda interval: (_start(interval), _shown(interval)))]


def _shown(interval: Interval) -> str:
    return f"{interval[0]}..{interval[1]}" if isinstance(interval, tuple) else str(interval)


def _plain_number(text: str) -> str:
    """Without an exponent, with at most three decimals: the way in which a registry compares numbers."""
    try:
        if re.fullmatch(r"[+-]?0[xX][0-9a-fA-F]+", text):
            return str(int(text, 16))
        number = Decimal(text.rstrip("fF"))
        if not number.is_finite() or abs(number.adjusted()) > 400:
            return text
        rounded = number.quantize(Decimal("0.001"), rounding=ROUND_HALF_EVEN) if abs(number) < 10**20 else number
    except InvalidOperation:
        return text
    plain = f"{rounded:f}"
    return plain.rstrip("0").rstrip(".") if "." in plain else plain

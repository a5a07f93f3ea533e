"""The syntax of a `.proto` file: names and options as they were written, in their order."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

MAX_NUMBER: Final = (1 << 29) - 1
MAX_MESSAGE_DEPTH: Final = 32  # protoc's, too
SCALARS: Final = frozenset(
    {
        "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string",
        "bytes", "uint32", "sfixed32", "sfixed64", "sint32", "sint64",
    }
)  # fmt: skip


class Kind(Enum):
    """Kinds of an option's value. OPTION is the rest of a path: ``(a).b = 1`` has the option ``b`` as its value."""

    STRING = auto()
    BOOLEAN = auto()
    ENUM = auto()
    NUMBER = auto()
    MAP = auto()
    LIST = auto()
    OPTION = auto()


@dataclass(slots=True)
class Value:
    """An option's value. ``content`` is a text, a list of Values, pairs of names and Values, or an Option."""

    kind: Kind
    content: Any


@dataclass(slots=True)
class Option:
    name: str
    value: Value
    parenthesized: bool = False


class Identifier(str):
    """A reserved name without quotation marks, which is how editions have them."""


# A reserved or extension entry: a number, a range with its end, or a name.
Interval = int | tuple[int, int] | str


@dataclass(slots=True)
class Field:
    """``type`` is a scalar, a name as it was written, or ``map<K, V>``."""

    label: str | None
    type: str
    name: str
    number: int
    options: list[Option] = field(default_factory=list)
    default: Value | None = None
    json_name: str | None = None


@dataclass(slots=True)
class OneOf:
    name: str
    fields: list[Field | Group] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class Extensions:
    intervals: list[Interval]
    options: list[Option]


@dataclass(slots=True)
class Extend:
    extendee: str
    fields: list[Field | Group] = field(default_factory=list)


@dataclass(slots=True)
class EnumValue:
    name: str
    number: int
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class EnumType:
    name: str
    reserved: list[list[Interval]] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    values: list[EnumValue] = field(default_factory=list)


@dataclass(slots=True)
class Message:
    """``body`` has fields, oneofs, groups, types and extends in their order, which is the order of a descriptor."""

    name: str
    reserved: list[list[Interval]] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    extensions: list[Extensions] = field(default_factory=list)
    body: list[Declaration] = field(default_factory=list)

    @property
    def fields(self) -> list[Field]:
        return [declaration for declaration in self.body if isinstance(declaration, Field)]

    @property
    def oneofs(self) -> list[OneOf]:
        return [declaration for declaration in self.body if isinstance(declaration, OneOf)]

    @property
    def messages(self) -> list[Message]:
        return [declaration for declaration in self.body if isinstance(declaration, Message)]

    @property
    def enums(self) -> list[EnumType]:
        return [declaration for declaration in self.body if isinstance(declaration, EnumType)]


@dataclass(slots=True)
class Group:
    """A field and the message that is its type."""

    label: str | None
    message: Message
    number: int
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class Method:
    name: str
    request: str
    response: str
    request_streams: bool = False
    response_streams: bool = False
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class Service:
    name: str
    methods: list[Method] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class ProtoFile:
    syntax: str | None = None
    edition: str | None = None
    package: str | None = None
    imports: list[str] = field(default_factory=list)
    public_imports: list[str] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    body: list[Declaration] = field(default_factory=list)  # types and extends
    services: list[Service] = field(default_factory=list)

    @property
    def messages(self) -> list[Message]:
        return [declaration for declaration in self.body if isinstance(declaration, Message)]


Declaration = Field | OneOf | Group | Message | EnumType | Extend

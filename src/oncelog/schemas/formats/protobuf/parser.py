"""`.proto` text to its syntax, by the grammar of proto2, proto3 and editions."""

from __future__ import annotations

from typing import Final

from oncelog.schemas.formats.limits import Budget, check_depth
from oncelog.schemas.formats.protobuf.syntax import (
    MAX_MESSAGE_DEPTH,
    MAX_NUMBER,
    Declaration,
    EnumType,
    EnumValue,
    Extend,
    Extensions,
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
from oncelog.schemas.formats.protobuf.tokens import END, Tokens

_LABELS: Final = ("optional", "required", "repeated")
_CLOSING: Final = {"{": "}", "<": ">"}
MAX_INT32: Final = 2**31 - 1


def parse_file(text: str) -> ProtoFile:
    """Raises SchemaError with the line."""
    return _Parser(text).file()


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = Tokens(text)
        self.budget = Budget()

    def file(self) -> ProtoFile:
        tokens = self.tokens
        file = ProtoFile()
        while tokens.kind != END:
            if tokens.take(";"):
                continue
            word = tokens.name("a declaration")
            if word in {"syntax", "edition"}:
                tokens.expect("=")
                setattr(file, word, tokens.string())
                tokens.expect(";")
            elif word == "package":
                file.package = tokens.dotted_name()
                tokens.expect(";")
            elif word == "import":
                self._import(file)
            elif word == "service":
                file.services.append(self._service())
            elif not self._declaration(word, file.body, file.options, 0):
                tokens.fail(f"a declaration, not {word!r},")
        return file

    def _import(self, file: ProtoFile) -> None:
        imports = file.imports
        if self.tokens.kind == "name":
            modifier = self.tokens.name()
            if modifier not in {"public", "weak", "option"}:
                self.tokens.fail("the path of an import")
            if modifier == "public":
                imports = file.public_imports
        imports.append(self.tokens.string())
        self.tokens.expect(";")

    def _declaration(self, word: str, body: list[Declaration], options: list[Option], depth: int) -> bool:
        """Parses what files and messages share; False for anything else."""
        tokens = self.tokens
        if tokens.kind == "sign" and tokens.text == "=":
            return False  # the name of an enum's value
        if word in {"export", "local"} and tokens.text in {"message", "enum"}:
            word = tokens.name()
        if word == "message":
            body.append(self.message(tokens.name("the name of a message"), depth))
        elif word == "enum":
            body.append(self._enum())
        elif word == "extend":
            body.append(self._extend(depth))
        elif word == "option":
            options.append(self._option(0))
            tokens.expect(";")
        else:
            return False
        return True

    def message(self, name: str, depth: int) -> Message:
        check_depth(depth, MAX_MESSAGE_DEPTH)
        self.budget.spend()
        tokens = self.tokens
        message = Message(name)
        tokens.expect("{")
        while not tokens.take("}"):
            if tokens.take(";"):
                continue
            if tokens.kind == "sign" and tokens.text == ".":
                message.body.append(self._field(None, tokens.dotted_name()))
                continue
            word = tokens.name("a field or a declaration")
            if word == "oneof" and tokens.kind == "name":
                message.body.append(self._oneof(depth))
            elif word == "reserved" and tokens.text != ".":
                message.reserved.append(self._intervals(MAX_NUMBER))
                tokens.expect(";")
            elif word == "extensions" and tokens.kind == "number":
                message.extensions.append(Extensions(self._intervals(MAX_NUMBER), self._bracketed()))
                tokens.expect(";")
            elif not self._declaration(word, message.body, message.options, depth + 1):
                message.body.append(self._labelled(word, depth))
        return message

    def _labelled(self, word: str, depth: int) -> Field | Group:
        """A field whose first word has been read: a label or its type."""
        label = None
        if word in _LABELS and self.tokens.text != "=":
            label = word
            word = self.tokens.dotted_name()
        elif self.tokens.text == ".":
            self.tokens.advance()
            word = f"{word}.{self.tokens.dotted_name()}"
        if word == "group":
            return self._group(label, depth)
        return self._field(label, word)

    def _field(self, label: str | None, kind: str) -> Field:
        self.budget.spend()
        tokens = self.tokens
        if kind == "map" and tokens.take("<"):
            key = tokens.dotted_name()
            tokens.expect(",")
            kind = f"map<{key}, {tokens.dotted_name()}>"
            tokens.expect(">")
        name = tokens.name("the name of a field")
        tokens.expect("=")
        field = Field(label, kind, name, self._number())
        for option in self._bracketed():
            if option.name == "default" and not option.parenthesized:
                field.default = option.value
            elif option.name == "json_name" and not option.parenthesized:
                field.json_name = str(option.value.content)
            else:
                field.options.append(option)
        tokens.expect(";")
        return field

    def _group(self, label: str | None, depth: int) -> Group:
        name = self.tokens.name("the name of a group")
        self.tokens.expect("=")
        number = self._number()
        options = self._bracketed()
        return Group(label, self.message(name, depth + 1), number, options)

    def _number(self) -> int:
        number = self.tokens.integer()
        if not 1 <= number <= MAX_NUMBER or 19000 <= number <= 19999:
            self.tokens.fail(f"a field number from 1 to {MAX_NUMBER} outside 19000 to 19999, not {number},")
        return number

    def _oneof(self, depth: int) -> OneOf:
        tokens = self.tokens
        oneof = OneOf(tokens.name("the name of a oneof"))
        self.budget.spend()
        tokens.expect("{")
        while not tokens.take("}"):
            if tokens.take(";"):
                continue
            if tokens.text == "." and tokens.kind == "sign":
                oneof.fields.append(self._field(None, tokens.dotted_name()))
                continue
            word = tokens.name("a field of a oneof")
            if word == "option" and tokens.text != ".":
                oneof.options.append(self._option(0))
                tokens.expect(";")
            elif word in _LABELS:
                tokens.fail(f"a field of a oneof without {word!r}")
            else:
                oneof.fields.append(self._labelled(word, depth))
        return oneof

    def _extend(self, depth: int) -> Extend:
        tokens = self.tokens
        extend = Extend(tokens.dotted_name())
        tokens.expect("{")
        while not tokens.take("}"):
            if tokens.take(";"):
                continue
            if tokens.text == "." and tokens.kind == "sign":
                extend.fields.append(self._field(None, tokens.dotted_name()))
            else:
                extend.fields.append(self._labelled(tokens.name("a field"), depth))
        return extend

    def _enum(self) -> EnumType:
        tokens = self.tokens
        enum = EnumType(tokens.name("the name of an enum"))
        self.budget.spend()
        tokens.expect("{")
        while not tokens.take("}"):
            if tokens.take(";"):
                continue
            word = tokens.name("a value of an enum")
            if word == "option" and tokens.text != "=":
                enum.options.append(self._option(0))
            elif word == "reserved" and tokens.text != "=":
                enum.reserved.append(self._intervals(MAX_INT32))
            else:
                self.budget.spend()
                tokens.expect("=")
                enum.values.append(EnumValue(word, tokens.integer(), self._bracketed()))
            tokens.expect(";")
        return enum

    def _intervals(self, largest: int) -> list[Interval]:
        """The numbers, ranges and names of a reserved or extensions statement."""
        tokens = self.tokens
        intervals: list[Interval] = []
        while True:
            self.budget.spend()
            if tokens.kind == "string":
                intervals.append(tokens.string())
            elif tokens.kind == "name":
                intervals.append(Identifier(tokens.name()))
            else:
                start = tokens.integer()
                if tokens.take("to"):
                    intervals.append((start, largest if tokens.take("max") else tokens.integer()))
                else:
                    intervals.append(start)
            if not tokens.take(","):
                return intervals

    def _service(self) -> Service:
        tokens = self.tokens
        service = Service(tokens.name("the name of a service"))
        self.budget.spend()
        tokens.expect("{")
        while not tokens.take("}"):
            if tokens.take(";"):
                continue
            word = tokens.name("rpc or option")
            if word == "option":
                service.options.append(self._option(0))
                tokens.expect(";")
            elif word == "rpc":
                service.methods.append(self._method())
            else:
                tokens.fail(f"rpc or option, not {word!r},")
        return service

    def _method(self) -> Method:
        tokens = self.tokens
        self.budget.spend()
        name = tokens.name("the name of a method")
        request, request_streams = self._method_type()
        tokens.expect("returns")
        response, response_streams = self._method_type()
        method = Method(name, request, response, request_streams, response_streams)
        if tokens.take("{"):
            while not tokens.take("}"):
                if tokens.take(";"):
                    continue
                tokens.expect("option")
                method.options.append(self._option(0))
                tokens.expect(";")
        else:
            tokens.expect(";")
        return method

    def _method_type(self) -> tuple[str, bool]:
        tokens = self.tokens
        tokens.expect("(")
        streams = tokens.take("stream")
        name = "stream" if streams and tokens.text == ")" else tokens.dotted_name()
        tokens.expect(")")
        return name, streams and name != "stream"

    # Options

    def _bracketed(self) -> list[Option]:
        if not self.tokens.take("["):
            return []
        options = [self._option(0)]
        while self.tokens.take(","):
            options.append(self._option(0))
        self.tokens.expect("]")
        return options

    def _option(self, depth: int) -> Option:
        """``a.b = 1``, ``(a) = 1`` or ``(a).b = 1``."""
        check_depth(depth)
        tokens = self.tokens
        parenthesized = tokens.take("(")
        name = tokens.dotted_name() if parenthesized else tokens.name("the name of an option")
        if parenthesized:
            tokens.expect(")")
        if tokens.take("."):
            return Option(name, Value(Kind.OPTION, self._option(depth + 1)), parenthesized)
        if not (depth and tokens.text in _CLOSING):
            tokens.expect("=")
        return Option(name, self._value(depth), parenthesized)

    def _value(self, depth: int) -> Value:
        check_depth(depth)
        self.budget.spend()
        tokens = self.tokens
        if tokens.kind == "string":
            return Value(Kind.STRING, tokens.string())
        if tokens.text in _CLOSING:
            return Value(Kind.MAP, self._pairs(depth))
        if tokens.take("["):
            values = []
            while not tokens.take("]"):
                values.append(self._value(depth + 1))
                tokens.take(",")
            return Value(Kind.LIST, values)
        sign = "-" if tokens.take("-") else "+" if tokens.take("+") else ""
        if tokens.kind == "number":
            return Value(Kind.NUMBER, sign + tokens.advance())
        word = tokens.name("the value of an option")
        if sign:
            return Value(Kind.NUMBER, sign + word)
        return Value(Kind.BOOLEAN if word in {"true", "false"} else Kind.ENUM, word)

    def _pairs(self, depth: int) -> list[tuple[str, Value]]:
        """The fields of a message in the text format."""
        tokens = self.tokens
        closing = _CLOSING[tokens.advance()]
        pairs = []
        while not tokens.take(closing):
            if tokens.take("["):
                name = tokens.dotted_name()
                while tokens.take("/"):
                    name += "/" + tokens.dotted_name()
                tokens.expect("]")
                name = f"[{name}]"
            else:
                name = tokens.name("the name of a field")
            if not tokens.take(":") and tokens.text not in _CLOSING:
                tokens.fail("':'")
            pairs.append((name, self._value(depth + 1)))
            if not tokens.take(","):
                tokens.take(";")
        return pairs

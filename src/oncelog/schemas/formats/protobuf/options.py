"""Options of a `.proto` file into its descriptor, by way of Protobuf's text format."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import text_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.text_encoding import CEscape

from oncelog.schemas.formats.protobuf.descriptors import Optioned
from oncelog.schemas.formats.protobuf.names import Scope
from oncelog.schemas.formats.protobuf.syntax import Kind, Option, Value
from oncelog.schemas.schema import SchemaError

_MAX_SHOWN: Final = 200


def interpret(optioned: Optioned, pool: DescriptorPool, scope: Scope) -> None:
    """``pool`` has the file itself, for the options that it defines. Raises SchemaError for an option that is not
    valid; one whose extension is not imported stays in the text alone."""
    for message, options, scope_name in optioned:
        target = message.options
        options_class = GetMessageClass(pool.FindMessageTypeByName(target.DESCRIPTOR.full_name))
        parsed = options_class.FromString(target.SerializeToString())
        for option in options:
            text = _text(option, scope, scope_name)
            if text is None:
                continue
            try:
                text_format.Merge(text, parsed, descriptor_pool=pool)
            except (text_format.ParseError, ValueError, TypeError) as error:
                raise SchemaError(f"the option {text[:_MAX_SHOWN]!r} is not valid: {error}") from None
        target.MergeFromString(parsed.SerializeToString())


def _text(option: Option, scope: Scope, scope_name: str) -> str | None:
    name = option.name
    if option.parenthesized:
        try:
            name = f"[{scope.resolve(name, scope_name, extension=True)}]"
        except SchemaError:
            return None
    content: Any = option.value.content
    if option.value.kind is Kind.OPTION:
        inner = _text(content, scope, scope_name)
        return None if inner is None else f"{name} {{ {inner} }}"
    return f"{name}: {_value(option.value)}"


def _value(value: Value) -> str:
    content: Any = value.content
    if value.kind is Kind.STRING:
        return f'"{CEscape(content.encode("utf-8", "surrogateescape"), as_utf8=False)}"'
    if value.kind is Kind.MAP:
        return "{ " + " ".join(f"{name}: {_value(inner)}" for name, inner in content) + " }"
    if value.kind is Kind.LIST:
        return "[" + ", ".join(_value(inner) for inner in content) + "]"
    return str(content)

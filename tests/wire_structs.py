"""Fields of protocol messages by reflection, for tests that make or compare any message."""

from __future__ import annotations

import typing
from functools import cache
from typing import Any, TypeGuard

from oncelog.wire.message import WireStruct


def is_struct(value: object) -> TypeGuard[WireStruct]:
    """True for a message and a part of one."""
    return isinstance(value, WireStruct)


def is_struct_class(hint: object) -> TypeGuard[type[WireStruct]]:
    """True for the class of a message or of a part of one."""
    return isinstance(hint, type) and issubclass(hint, WireStruct)


@cache
def types_of(cls: type[WireStruct]) -> dict[str, Any]:
    """The types of a class's fields, by name."""
    hints = typing.get_type_hints(cls.__init__)
    return {name: hints[name] for name in cls.__slots__}


def as_dict(value: Any) -> Any:
    """A message as dictionaries and lists."""
    if is_struct(value):
        return {name: as_dict(getattr(value, name)) for name in value.__slots__}
    return [as_dict(item) for item in value] if isinstance(value, list) else value

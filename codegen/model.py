"""The model of a message for the renderer: structs of fields with their version ranges."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class VersionRange(NamedTuple):
    """Versions from ``first`` to ``last``, both included."""

    first: int
    last: int

    @classmethod
    def of(cls, versions: Iterable[int]) -> VersionRange:
        """The range of ``versions``, which must have no gap."""
        ordered = sorted(set(versions))
        found = cls(ordered[0], ordered[-1])
        if len(ordered) != found.last - found.first + 1:
            raise ValueError(f"versions with a gap: {ordered}")
        return found

    def condition(self, within: VersionRange) -> str | None:
        """The Python expression that is true in this range, for a version known to be in ``within``."""
        if self.first <= within.first:
            return None if self.last >= within.last else f"version <= {self.last}"
        if self.first == self.last < within.last:
            return f"version == {self.first}"
        return f"version >= {self.first}" if self.last >= within.last else f"{self.first} <= version <= {self.last}"


@dataclass
class Field:
    """A field of a struct. ``type`` is a primitive of ``primitives.PRIMITIVES`` or the name of a struct."""

    name: str
    type: str
    versions: VersionRange
    is_struct: bool = False
    is_array: bool = False
    nullable: VersionRange | None = None
    tag: int | None = None
    default: str | None = None
    """Python expression; None: the type's own."""


@dataclass
class Struct:
    """A request, a response or what is nested in one; ``fields`` in the order of the wire, tagged ones among them."""

    name: str
    versions: VersionRange
    fields: list[Field]

    @property
    def plain_fields(self) -> list[Field]:
        """Those that are always there."""
        return [item for item in self.fields if item.tag is None]

    @property
    def tagged_fields(self) -> list[tuple[int, Field]]:
        """By tag."""
        return sorted(((item.tag, item) for item in self.fields if item.tag is not None), key=lambda pair: pair[0])


@dataclass
class Api:
    """An API: its two messages and all their structs, each after those it needs."""

    key: int
    module: str
    request: str
    response: str
    versions: VersionRange
    first_flexible: int | None
    baseline: int = 0
    """The first version that Apache Kafka 4 has (KIP-896), where older ones are read and written too."""
    structs: dict[str, Struct] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Kafka's name of the API."""
        return self.request.removesuffix("Request")

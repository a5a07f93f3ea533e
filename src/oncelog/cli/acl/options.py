"""Options that the ``oncelog acl`` commands share (resource, entry), and how entries are printed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from oncelog.base.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from oncelog.base.notation.shell_words import argument, option
from oncelog.cli.support.output import print_table

Principal = Annotated[
    str | None, typer.Option("--principal", metavar="NAME", help="User:alice, or alice for short; '*': everybody.")
]
Host = Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="The address that clients come from.")]

OPTIONS: Final = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
    ResourceType.USER: "--user",
}


@dataclass(frozen=True)
class ResourceOptions:
    topic: Annotated[str | None, typer.Option("--topic", metavar="NAME", help="A topic; '*': all of them.")] = None
    group: Annotated[str | None, typer.Option("--group", metavar="ID", help="A consumer group; '*': all of them.")] = (
        None
    )
    transactional_id: Annotated[
        str | None, typer.Option("--transactional-id", metavar="ID", help="A transactional id; '*': all of them.")
    ] = None
    cluster: Annotated[bool, typer.Option("--cluster", help="The cluster itself.")] = False
    user: Annotated[str | None, typer.Option("--user", metavar="PRINCIPAL", help="A user, as the owner of tokens.")] = (
        None
    )

    @property
    def pattern_type(self) -> PatternType:
        return PatternType.LITERAL

    def named(self) -> list[ResourcePattern]:
        """The patterns, one for each option. Raises BadParameter for a prefix of all names."""
        kind = self.pattern_type
        values = zip(OPTIONS, (self.topic, self.group, self.transactional_id, self.user), strict=True)
        patterns = [ResourcePattern(resource_type, kind, name) for resource_type, name in values if name is not None]
        if kind is PatternType.PREFIXED and any(pattern.name in ("", "*") for pattern in patterns):
            raise typer.BadParameter(
                "give the beginning of names; for all names, give '*' without --prefix", param_hint="--prefix"
            )
        if self.cluster:
            patterns.append(ResourcePattern(ResourceType.CLUSTER, PatternType.LITERAL, CLUSTER_NAME))
        return patterns

    def required(self) -> list[ResourcePattern]:
        patterns = self.named()
        if not patterns:
            raise typer.BadParameter(f"name a resource: {', '.join(OPTIONS.values())} or --cluster")
        return patterns

    def single(self) -> ResourcePattern:
        """The only pattern. Raises BadParameter unless exactly one resource is named."""
        patterns = self.required()
        if len(patterns) > 1:
            raise typer.BadParameter(f"{len(patterns)} resources are named; name one")
        return patterns[0]


@dataclass(frozen=True)
class PatternOptions(ResourceOptions):
    prefix: Annotated[bool, typer.Option("--prefix", help="All resources whose names begin with this.")] = False

    @property
    def pattern_type(self) -> PatternType:
        return PatternType.PREFIXED if self.prefix else PatternType.LITERAL


def principal_of(text: str) -> str:
    """A principal; a bare name means ``User:name``."""
    return text if ":" in text else f"User:{text}"


def operation_of(text: str) -> Operation:
    """An operation by its name (``read``, ``describe-configs``, ``DescribeConfigs``). Raises BadParameter."""
    compact = text.replace("-", "").replace("_", "").lower()
    for operation in Operation:
        if operation >= Operation.ALL and operation.name.replace("_", "").lower() == compact:
            return operation
    words = ", ".join(word(operation) for operation in Operation if operation >= Operation.ALL)
    raise typer.BadParameter(f"{text!r} is not an operation; choose one of {words}")


def word(code: Operation | ResourceType | PatternType | Permission) -> str:
    """A code as commands spell it: ``describe-configs``."""
    return code.name.lower().replace("_", "-")


def check_operations(patterns: Iterable[ResourcePattern], operations: Iterable[Operation]) -> None:
    """Raises BadParameter for an operation that no request uses on this type of resource."""
    for pattern in patterns:
        allowed = OPERATIONS[pattern.resource_type]
        for operation in operations:
            if operation not in (Operation.ALL, *allowed):
                raise typer.BadParameter(
                    f"no request needs {word(operation)} on a {word(pattern.resource_type)}; choose one of all, "
                    + ", ".join(map(word, allowed))
                )


def print_acls(bindings: Iterable[AclBinding]) -> None:
    print_table(
        ("resource", "pattern", "name", "principal", "host", "permission", "operation"),
        [
            (
                word(pattern.resource_type),
                word(pattern.pattern_type),
                pattern.name,
                entry.principal,
                entry.host,
                word(entry.permission),
                word(entry.operation),
            )
            for pattern, entry in bindings
        ],
    )


def command_for(verb: str, binding: AclBinding) -> str:
    """The command line that creates an entry (``allow``, ``deny``) or deletes it (``remove``)."""
    pattern, entry = binding
    named = OPTIONS.get(pattern.resource_type)
    parts = [f"oncelog acl {verb}"]
    if verb == "remove":
        parts += [option("--principal", entry.principal), option("--operation", word(entry.operation))]
    parts.append("--cluster" if named is None else option(named, pattern.name))
    if pattern.pattern_type is PatternType.PREFIXED:
        parts.append("--prefix")
    if entry.host != "*":
        parts.append(option("--host", entry.host))
    if verb == "remove":
        return " ".join([*parts, f"--{word(entry.permission)}"])
    names = argument(entry.principal, word(entry.operation))
    parts.insert(len(parts) if names.startswith("-- ") else 1, names)
    return " ".join(parts)

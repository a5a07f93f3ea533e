"""Access control lists as values: the vocabulary of Apache Kafka, what an entry says, and which resources it is for.

Both sides use them: the image of the cluster holds them (``core.controller``), the authorizer decides by them
(``core.acls``), and handlers and tools speak of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

WILDCARD: Final = "*"
"""Any host, and as the name of a literal pattern any resource of the type."""
ANY_PRINCIPAL: Final = "User:*"
"""An entry for this principal is for all of them."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of the type CLUSTER."""


class Operation(IntEnum):
    """Operations, by Apache Kafka's ``AclOperation`` names and codes."""

    NONE = 0
    """A code of which the sender knew no better name (Apache Kafka's UNKNOWN)."""
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """Kinds of protected resources, by Apache Kafka's ``ResourceType`` names and codes."""

    NONE = 0
    """A code of which the sender knew no better name (Apache Kafka's UNKNOWN)."""
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Ways in which a pattern names resources, by Apache Kafka's names and codes; ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """The two things that an entry can say, by Apache Kafka's ``AclPermissionType`` names and codes."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


OPERATIONS: Final[dict[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations that a request may ask for, by kind of resource (KIP-430 tells clients which of them are allowed)."""


class AclEntry(NamedTuple):
    """One line of a list: a principal, connected from a host, may or must not do an operation."""

    principal: str
    host: str
    operation: Operation
    permission: Permission


class ResourcePattern(NamedTuple):
    """The resources that a list is for: one name, a beginning of names, or (literal ``*``) all of the type."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str

    def matches(self, name: str) -> bool:
        """True if the list is for the resource of this name."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


class AclBinding(NamedTuple):
    """An entry and the resources that it is for."""

    pattern: ResourcePattern
    entry: AclEntry


@dataclass(frozen=True)
class ResourceAcls:
    """The list of one pattern, in the order in which its entries were made. ``version`` is that of its node."""

    entries: tuple[AclEntry, ...]
    version: int = 0

    @cached_property
    def by_principal(self) -> dict[str, tuple[AclEntry, ...]]:
        """The entries of each principal, with hosts in the one form in which they are compared."""
        found: dict[str, list[AclEntry]] = {}
        for entry in self.entries:
            comparable = entry._replace(host=canonical_host(entry.host))
            found.setdefault(entry.principal, []).append(comparable)
        return {principal: tuple(entries) for principal, entries in found.items()}


def canonical_host(host: str) -> str:
    """One form of an address, however it is written: ``0:0:0:0:0:0:0:1`` and ``::1`` are the same host, and an IPv4
    address inside an IPv6 one is the IPv4 address. Whatever is no IPv6 address is left as it is."""
    if ":" not in host:
        return host
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def kafka_word(code: IntEnum) -> str:
    """A code in the form of Apache Kafka's tools and tree: ``TransactionalId``, ``DescribeConfigs``, ``Allow``."""
    return "".join(part.capitalize() for part in code.name.split("_"))

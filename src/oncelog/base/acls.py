"""Access control lists as values: Apache Kafka's vocabulary, entries, and the resources that a list covers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

WILDCARD: Final = "*"
"""Any host, and as the name of a literal pattern any resource of the type."""
ANY_PRINCIPAL: Final = "User:*"
"""An entry for this principal applies to every principal."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


class Operation(IntEnum):
    """Operations, by Apache Kafka's ``AclOperation`` names and codes."""

    NONE = 0
    """A code without a known name (Apache Kafka's UNKNOWN)."""
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
    """A code without a known name (Apache Kafka's UNKNOWN)."""
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a pattern matches resource names, by Apache Kafka's names and codes; ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """DENY or ALLOW, by Apache Kafka's ``AclPermissionType`` names and codes."""

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
"""The operations that apply to each kind of resource (KIP-430 reports the allowed ones to clients)."""


class AclEntry(NamedTuple):
    """One line of a list: allows or denies a principal, connected from a host, an operation."""

    principal: str
    host: str
    operation: Operation
    permission: Permission


class ResourcePattern(NamedTuple):
    """The resources that a list covers: one name, a prefix, or (literal ``*``) all of the type."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str

    def matches(self, name: str) -> bool:
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


class AclBinding(NamedTuple):
    pattern: ResourcePattern
    entry: AclEntry


@dataclass(frozen=True)
class ResourceAcls:
    """Entries are in order of creation. ``version`` is the version of the list's node."""

    entries: tuple[AclEntry, ...]
    version: int = 0

    @cached_property
    def by_principal(self) -> dict[str, tuple[AclEntry, ...]]:
        """The entries of each principal, with hosts in canonical form."""
        by_name: dict[str, list[AclEntry]] = {}
        for entry in self.entries:
            comparable = entry._replace(host=canonical_host(entry.host))
            by_name.setdefault(entry.principal, []).append(comparable)
        return {principal: tuple(entries) for principal, entries in by_name.items()}


def canonical_host(host: str) -> str:
    """One spelling for each address: ``0:0:0:0:0:0:0:1`` is ``::1``, and an IPv4-mapped IPv6 address is the IPv4
    address. Other texts are returned unchanged."""
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
    """A code as Apache Kafka's tools and tree spell it: ``TransactionalId``, ``DescribeConfigs``, ``Allow``."""
    return "".join(part.capitalize() for part in code.name.split("_"))

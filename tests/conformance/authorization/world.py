"""The requesters in the corpus: a principal for each right alone, so that an answer says which right it asks for.

Every principal may do what it may to the topics ``t`` and ``d``, the group ``g``, the transactional id ``x`` and the
cluster; ``u`` (unknown), ``else`` and ``hidden`` are others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from oncelog.base.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    kafka_word,
)

ADMIN: Final = "admin"
TOPIC, DOOMED, ELSE, HIDDEN, UNKNOWN = "t", "d", "else", "hidden", "u"
GROUP: Final = "g"
TRANSACTIONAL_ID: Final = "x"
HOST: Final = "127.0.0.1"

_NAMES: Final = {
    ResourceType.TOPIC: (TOPIC, DOOMED),
    ResourceType.GROUP: (GROUP,),
    ResourceType.CLUSTER: (CLUSTER_NAME,),
    ResourceType.TRANSACTIONAL_ID: (TRANSACTIONAL_ID,),
}
Right = tuple[ResourceType, Operation]
RIGHTS: Final[Sequence[Right]] = [(kind, operation) for kind in _NAMES for operation in OPERATIONS[kind]]
_T, _G, _C, _X = _NAMES
_TOGETHER: Final[Sequence[Sequence[Right]]] = (
    ((_X, Operation.WRITE), (_T, Operation.WRITE)),
    ((_X, Operation.WRITE), (_G, Operation.READ)),
    ((_X, Operation.WRITE), (_T, Operation.READ)),
    ((_X, Operation.WRITE), (_G, Operation.READ), (_T, Operation.READ)),
    ((_X, Operation.WRITE), (_X, Operation.TWO_PHASE_COMMIT)),
    ((_X, Operation.DESCRIBE), (_T, Operation.DESCRIBE)),
    ((_G, Operation.READ), (_T, Operation.READ)),
    ((_G, Operation.DESCRIBE), (_T, Operation.DESCRIBE)),
    ((_G, Operation.DELETE), (_T, Operation.READ)),
    ((_C, Operation.CREATE), (_T, Operation.DESCRIBE_CONFIGS)),
    ((_T, Operation.DELETE), (_C, Operation.CLUSTER_ACTION)),
)


def _right_name(right: Right) -> str:
    return f"{kafka_word(right[0])}{kafka_word(right[1])}"


def _everything(principal: str, host: str = "*", pattern: PatternType = PatternType.LITERAL) -> Iterator[AclBinding]:
    for kind, names in _NAMES.items():
        for name in (CLUSTER_NAME,) if kind is ResourceType.CLUSTER else names:
            yield _binding(principal, kind, name, Operation.ALL, host=host, pattern=pattern)


def _binding(
    principal: str,
    kind: ResourceType,
    name: str,
    operation: Operation,
    permission: Permission = Permission.ALLOW,
    host: str = "*",
    pattern: PatternType = PatternType.LITERAL,
) -> AclBinding:
    return AclBinding(ResourcePattern(kind, pattern, name), AclEntry(f"User:{principal}", host, operation, permission))


def _with(principal: str, *rights: Right, permission: Permission = Permission.ALLOW) -> list[AclBinding]:
    return [
        _binding(principal, kind, name, operation, permission) for kind, operation in rights for name in _NAMES[kind]
    ]


def _principals() -> dict[str, list[AclBinding]]:
    result: dict[str, list[AclBinding]] = {
        "nobody": [],
        "elsewhere": [
            _binding("elsewhere", kind, name, Operation.ALL) for kind, name in ((_T, ELSE), (_G, ELSE), (_X, ELSE))
        ],
        "allowed": list(_everything("allowed")),
        "wildcard": [_binding("wildcard", kind, "*", Operation.ALL) for kind in (_T, _G, _X)],
        "prefix": list(_everything("prefix", pattern=PatternType.PREFIXED)),
        "host": list(_everything("host", HOST)),
        "otherhost": list(_everything("otherhost", "10.9.9.9")),
        "denied": [
            *_everything("denied"),
            *_with("denied", *((kind, Operation.ALL) for kind in _NAMES), permission=Permission.DENY),
        ],
    }
    for right in RIGHTS:
        name = _right_name(right)
        result[name] = _with(name, right)
        without = f"not{name}"
        result[without] = [*_everything(without), *_with(without, right, permission=Permission.DENY)]
    for rights in _TOGETHER:
        name = "and".join(map(_right_name, rights))
        result[name] = _with(name, *rights)
    return result


PRINCIPALS: Final = _principals()
"""Rights by name of the user."""
IN_EVERY_VERSION: Final = ("nobody", "elsewhere", "allowed", "denied")
"""Those who ask in all versions; the others in the lowest and in the highest."""

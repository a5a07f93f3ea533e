"""The authorizer beside one that looks at every entry, on lists of thousands of entries."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.base.acls import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourceAcls,
    ResourcePattern,
    ResourceType,
)
from oncelog.core.acls.authorizer import Acls, Authorizer, AuthorizerSettings

TYPES: Final = (ResourceType.TOPIC, ResourceType.GROUP)
OPERATIONS: Final = tuple(item for item in Operation if item > Operation.ALL)
PRINCIPALS: Final = ("User:a", "User:b", "User:c", "Service:a")
HOSTS: Final = ("10.0.0.1", "10.0.0.2")
LETTERS: Final = "ab-"
IMPLYING: Final = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}

names = st.text(LETTERS, min_size=1, max_size=5)
patterns = st.builds(
    ResourcePattern,
    st.sampled_from(TYPES),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    names | st.just("*"),
)
entries = st.builds(
    AclEntry,
    st.sampled_from([*PRINCIPALS, "User:*"]),
    st.sampled_from([*HOSTS, "*"]),
    st.sampled_from([*OPERATIONS, Operation.ALL]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
bindings = st.lists(st.builds(AclBinding, patterns, entries), max_size=12)
questions = st.tuples(
    st.sampled_from(PRINCIPALS),
    st.sampled_from([f"/{host}" for host in HOSTS]),
    st.sampled_from(OPERATIONS),
    st.sampled_from(TYPES),
    names,
)
settings_of = st.builds(AuthorizerSettings, st.frozensets(st.sampled_from(PRINCIPALS), max_size=1), st.booleans())


def by_pattern(result: list[AclBinding]) -> Acls:
    lists: dict[ResourcePattern, list[AclEntry]] = {}
    for pattern, entry in result:
        lists.setdefault(pattern, []).append(entry)
    return {pattern: ResourceAcls(tuple(lines)) for pattern, lines in lists.items()}


def naive(
    result: list[AclBinding],
    settings: AuthorizerSettings,
    question: tuple[str, str, Operation, ResourceType, str],
) -> bool:
    """The rules as Apache Kafka's documentation says them, entry by entry."""
    principal, host, operation, resource_type, name = question
    if principal in settings.super_users:
        return True
    about = [
        entry
        for pattern, entry in result
        if pattern.resource_type == resource_type
        and (
            name.startswith(pattern.name)
            if pattern.pattern_type == PatternType.PREFIXED
            else pattern.name in ("*", name)
        )
    ]
    if not about:
        return settings.allow_everyone
    mine = [e for e in about if e.principal in (principal, "User:*") and e.host in ("*", host[1:])]
    if any(e.permission == Permission.DENY and e.operation in (operation, Operation.ALL) for e in mine):
        return False
    allowing = {operation, Operation.ALL} | IMPLYING.get(operation, set())
    return any(e.permission == Permission.ALLOW and e.operation in allowing for e in mine)


@given(bindings, settings_of, st.lists(questions, max_size=10))
def test_the_same_answer_as_the_naive_one(
    found: list[AclBinding],
    settings: AuthorizerSettings,
    asked: list[tuple[str, str, Operation, ResourceType, str]],
) -> None:
    acls, authorizer = by_pattern(found), Authorizer(settings)
    for question in [*asked, *asked]:
        assert authorizer.ruling(acls, question).allowed == naive(found, settings, question)


@given(bindings, settings_of, st.sampled_from(PRINCIPALS), st.sampled_from(OPERATIONS))
def test_who_may_do_it_to_some_name_may_do_it_to_a_kind(
    found: list[AclBinding], settings: AuthorizerSettings, principal: str, operation: Operation
) -> None:
    """Not the reverse: one that is denied name by name what it is allowed by prefix may do it to the kind."""
    lists = [binding for binding in found if binding.pattern.resource_type is ResourceType.TOPIC]
    authorizer = Authorizer(settings)
    plain = [b for b in lists if b.entry.operation in (operation, Operation.ALL)]
    may_some = any(
        naive(plain, settings, (principal, "/10.0.0.1", operation, ResourceType.TOPIC, pattern.name))
        for pattern, entry in plain
        if entry.permission is Permission.ALLOW and pattern.name != "*"
    )
    if may_some and not settings.allow_everyone:
        assert authorizer.allows_any(by_pattern(lists), principal, "/10.0.0.1", operation, ResourceType.TOPIC)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_thousands_of_entries(seed: int) -> None:
    random = Random(seed)

    def name() -> str:
        return "".join(random.choices(LETTERS, k=random.randint(1, 8)))

    def entry() -> AclEntry:
        permission = Permission.DENY if random.random() < 0.1 else Permission.ALLOW
        return AclEntry(
            random.choice([*PRINCIPALS, "User:*"]), random.choice([*HOSTS, "*"]), random.choice(OPERATIONS), permission
        )

    kinds = (PatternType.LITERAL, PatternType.PREFIXED)
    result = [
        AclBinding(ResourcePattern(random.choice(TYPES), random.choice(kinds), name()), entry()) for _ in range(5_000)
    ]
    acls, authorizer = by_pattern(result), Authorizer(AuthorizerSettings())
    for _ in range(300):
        question = (
            random.choice(PRINCIPALS),
            f"/{random.choice(HOSTS)}",
            random.choice(OPERATIONS),
            random.choice(TYPES),
            name(),
        )
        assert authorizer.ruling(acls, question).allowed == naive(result, AuthorizerSettings(), question)

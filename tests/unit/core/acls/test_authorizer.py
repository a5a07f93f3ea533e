"""The authorizer's rules, one by one, with what Apache Kafka's StandardAuthorizer says of the same lists."""

from __future__ import annotations

from typing import Final

import pytest

from oncelog.base.acls import (
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourceAcls,
    ResourcePattern,
    ResourceType,
    canonical_host,
)
from oncelog.core.acls.authorizer import MAX_REMEMBERED_BYTES, Acls, Authorizer, AuthorizerSettings, Reason
from tests.memory import peak_bytes

HOST: Final = "/10.0.0.1"
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
TOPIC: Final = ResourceType.TOPIC
Line = tuple[PatternType, str, str, str, Operation, Permission]


def lists(*lines: Line, resource_type: ResourceType = TOPIC) -> Acls:
    """Lists by pattern, of lines (pattern type, name, principal, host, operation, permission)."""
    results: dict[ResourcePattern, list[AclEntry]] = {}
    for pattern_type, name, principal, host, operation, permission in lines:
        pattern = ResourcePattern(resource_type, pattern_type, name)
        results.setdefault(pattern, []).append(AclEntry(principal, host, operation, permission))
    return {pattern: ResourceAcls(tuple(entries)) for pattern, entries in results.items()}


def allows(
    acls: Acls, operation: Operation, name: str = "t", who: str = "User:a", settings: AuthorizerSettings | None = None
) -> bool:
    authorizer = Authorizer(settings or AuthorizerSettings())
    return authorizer.ruling(acls, (who, HOST, operation, TOPIC, name)).allowed


def test_nothing_is_allowed_by_default() -> None:
    assert not allows({}, Operation.READ)


def test_super_users_may_do_everything_also_what_is_denied() -> None:
    acls = lists((LITERAL, "*", "User:*", "*", Operation.ALL, DENY))
    assert allows(acls, Operation.WRITE, settings=AuthorizerSettings(frozenset({"User:a"})))
    assert not allows(acls, Operation.WRITE, settings=AuthorizerSettings(frozenset({"User:b"})))


@pytest.mark.parametrize(
    ("pattern_type", "pattern", "name", "found"),
    [
        (LITERAL, "t", "t", True),
        (LITERAL, "t", "tt", False),
        (LITERAL, "*", "anything", True),
        (LITERAL, "*", "*", True),
        (PREFIXED, "t", "t", True),
        (PREFIXED, "t", "tt", True),
        (PREFIXED, "tt", "t", False),
        (PREFIXED, "*", "t", False),
        (PREFIXED, "*", "*x", True),
        (PREFIXED, "é", "éa", True),
    ],
)
def test_which_names_a_pattern_is_for(pattern_type: PatternType, pattern: str, name: str, found: bool) -> None:
    acls = lists((pattern_type, pattern, "User:a", "*", Operation.READ, ALLOW))
    assert allows(acls, Operation.READ, name) is found
    assert next(iter(acls)).matches(name) is found


def test_a_list_is_for_its_kind_of_resource_only() -> None:
    acls = lists((LITERAL, "t", "User:a", "*", Operation.READ, ALLOW), resource_type=ResourceType.GROUP)
    assert not allows(acls, Operation.READ)


@pytest.mark.parametrize("denying", [(LITERAL, "t"), (PREFIXED, "t"), (LITERAL, "*")])
@pytest.mark.parametrize("allowing", [(LITERAL, "t"), (PREFIXED, "t"), (LITERAL, "*")])
def test_a_denial_wins_wherever_it_stands(denying: tuple[PatternType, str], allowing: tuple[PatternType, str]) -> None:
    allowed: Line = (*allowing, "User:a", "*", Operation.ALL, ALLOW)
    assert allows(lists(allowed), Operation.READ)
    assert not allows(lists(allowed, (*denying, "User:a", "*", Operation.READ, DENY)), Operation.READ)
    assert not allows(lists((*denying, "User:*", "10.0.0.1", Operation.ALL, DENY), allowed), Operation.READ)
    assert allows(lists(allowed, (*denying, "User:b", "*", Operation.READ, DENY)), Operation.READ)
    assert allows(lists(allowed, (*denying, "User:a", "10.0.0.2", Operation.READ, DENY)), Operation.READ)


@pytest.mark.parametrize("operation", [item for item in Operation if item > Operation.ALL])
def test_what_an_allowed_operation_implies(operation: Operation) -> None:
    acls = lists((LITERAL, "t", "User:a", "*", operation, ALLOW))
    describes = {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE}
    assert allows(acls, Operation.DESCRIBE) is (operation in describes)
    shows_configs = operation in (Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS)
    assert allows(acls, Operation.DESCRIBE_CONFIGS) is shows_configs
    assert allows(acls, operation)


def test_a_denied_operation_denies_no_other() -> None:
    acls = lists(
        (LITERAL, "t", "User:a", "*", Operation.ALL, ALLOW),
        (LITERAL, "t", "User:a", "*", Operation.DESCRIBE, DENY),
    )
    assert not allows(acls, Operation.DESCRIBE)
    assert allows(acls, Operation.READ), "a topic that is hidden from metadata can still be read"


def test_everyone_may_use_what_no_list_names_where_that_is_configured() -> None:
    everyone = AuthorizerSettings(allow_everyone=True)
    acls = lists((PREFIXED, "t", "User:b", "*", Operation.READ, ALLOW))
    assert allows(acls, Operation.WRITE, "other", settings=everyone)
    assert not allows(acls, Operation.READ, "topic", settings=everyone), "a list closes it to those it does not name"
    assert not allows(acls, Operation.READ, "other")


@pytest.mark.parametrize(
    ("listed", "asking"),
    [
        ("0:0:0:0:0:0:0:1", "/::1"),
        ("::1", "/0:0:0:0:0:0:0:1"),
        ("10.0.0.1", "/::ffff:10.0.0.1"),
        ("fe80::1", "/fe80::1%eth0"),
    ],
)
def test_one_host_in_two_spellings(listed: str, asking: str) -> None:
    acls = lists((LITERAL, "t", "User:a", listed, Operation.READ, ALLOW))
    question = ("User:a", asking, Operation.READ, TOPIC, "t")
    assert Authorizer(AuthorizerSettings()).ruling(acls, question).allowed
    assert canonical_host("no:address") == "no:address"


def test_the_reason_names_the_entry_that_decided() -> None:
    acls = lists(
        (PREFIXED, "t", "User:a", "*", Operation.WRITE, ALLOW), (LITERAL, "t", "User:*", "*", Operation.READ, DENY)
    )
    authorizer = Authorizer(AuthorizerSettings(frozenset({"User:root"}), allow_everyone=True))
    allowed = authorizer.ruling(acls, ("User:a", HOST, Operation.DESCRIBE, TOPIC, "t"))
    assert allowed.acl is not None
    assert (allowed.reason, allowed.acl.pattern.name, allowed.acl.entry.operation) == (Reason.ACL, "t", Operation.WRITE)
    denied = authorizer.ruling(acls, ("User:a", HOST, Operation.READ, TOPIC, "t"))
    assert denied.acl is not None
    assert denied.acl.entry.permission is DENY
    reasons = [
        authorizer.ruling(acls, (who, HOST, Operation.ALTER, TOPIC, name)).reason
        for who, name in (("User:root", "t"), ("User:a", "x"), ("User:a", "t"))
    ]
    assert reasons == [Reason.SUPER_USER, Reason.DEFAULT_ALLOW, Reason.DEFAULT_DENY]


class TestAnyName:
    """``authorizeByResourceType``: may somebody do this to some topic?"""

    def may(self, *lines: Line, settings: AuthorizerSettings | None = None) -> bool:
        authorizer = Authorizer(settings or AuthorizerSettings())
        return authorizer.allows_any(lists(*lines), "User:a", HOST, Operation.WRITE, TOPIC)

    def test_a_right_on_a_topic_that_does_not_exist_is_enough(self) -> None:
        assert not self.may()
        assert self.may((LITERAL, "nowhere", "User:a", "*", Operation.WRITE, ALLOW))
        assert self.may((PREFIXED, "now", "User:*", "10.0.0.1", Operation.ALL, ALLOW))
        assert not self.may((LITERAL, "nowhere", "User:a", "*", Operation.READ, ALLOW))
        assert not self.may((LITERAL, "nowhere", "User:b", "*", Operation.WRITE, ALLOW))

    def test_a_denial_of_all_that_is_allowed_takes_it_away(self) -> None:
        right: Line = (LITERAL, "ab", "User:a", "*", Operation.WRITE, ALLOW)
        assert not self.may(right, (LITERAL, "*", "User:a", "*", Operation.WRITE, DENY))
        assert not self.may(right, (LITERAL, "ab", "User:a", "*", Operation.ALL, DENY))
        assert not self.may(right, (PREFIXED, "a", "User:*", "*", Operation.WRITE, DENY))
        assert self.may(right, (PREFIXED, "abc", "User:a", "*", Operation.WRITE, DENY))
        assert self.may((PREFIXED, "ab", "User:a", "*", Operation.WRITE, ALLOW), (LITERAL, "ab", *right[2:5], DENY))
        assert self.may((LITERAL, "*", "User:a", "*", Operation.WRITE, ALLOW), (PREFIXED, "a", *right[2:5], DENY))

    def test_super_users_and_everyone(self) -> None:
        everything: Line = (LITERAL, "*", "User:*", "*", Operation.WRITE, DENY)
        assert self.may(everything, settings=AuthorizerSettings(frozenset({"User:a"})))
        assert self.may(settings=AuthorizerSettings(allow_everyone=True))
        assert not self.may(everything, settings=AuthorizerSettings(allow_everyone=True))


def test_decisions_are_forgotten_when_the_lists_change_and_before_they_are_too_many() -> None:
    authorizer = Authorizer(AuthorizerSettings())
    question = ("User:a", HOST, Operation.READ, TOPIC, "t")
    before = lists((LITERAL, "t", "User:a", "*", Operation.READ, ALLOW))
    assert authorizer.ruling(before, question).allowed
    assert authorizer.allows_any(before, *question[:4])
    assert not authorizer.ruling({}, question).allowed
    assert not authorizer.allows_any({}, *question[:4])


@pytest.mark.slow
def test_decisions_about_the_names_of_peers_take_little_memory() -> None:
    """20,000 decisions were remembered, whatever they were about: 1.2 GB for names of 32 kB."""
    max_bytes = int(1.5 * MAX_REMEMBERED_BYTES)

    def decide() -> None:
        authorizer = Authorizer(AuthorizerSettings())
        for length in (5, 249, 4_000, 32_000):
            for number in range(12_000 if length < 300 else 300):
                question = ("User:a", HOST, Operation.READ, TOPIC, f"{number}".ljust(length, "é"))
                assert not authorizer.ruling({}, question).allowed
            assert not authorizer.allows_any({}, *question[:4])

    assert peak_bytes(decide, max_bytes) < max_bytes

"""Access control lists in the tree: Apache Kafka's paths and JSON, changes by conditional commits of bounded size."""

from __future__ import annotations

import json

import pytest

from oncelog.base.acls import AclBinding, AclEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from oncelog.base.errors import ErrorCode
from oncelog.base.tree import MAX_COMMIT_BYTES, Create, Delete, commit_size
from oncelog.coordination.memory import MemoryTree
from oncelog.core.controller.entities import acl_changes
from oncelog.core.controller.entities.acl_changes import acl_count, create_acls, delete_acls, matching, refusal_of
from oncelog.core.controller.image.acl_nodes import acl_path, acl_value, pattern_of
from oncelog.core.controller.image.cluster_image import EMPTY_IMAGE, ClusterImage, load_image
from oncelog.core.controller.image.layout import DamagedFact
from oncelog.core.controller.outcomes import Refusal
from oncelog.ports import Conflict
from tests.unit.core.controller.cluster import applied

READ = AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW)


def binding(
    name: str = "t", entry: AclEntry = READ, kind: ResourceType = ResourceType.TOPIC, prefixed: bool = False
) -> AclBinding:
    return AclBinding(ResourcePattern(kind, PatternType.PREFIXED if prefixed else PatternType.LITERAL, name), entry)


@pytest.mark.parametrize(
    ("wanted", "path"),
    [
        (binding("orders"), "/kafka-acl/Topic/orders"),
        (binding("*"), "/kafka-acl/Topic/*"),
        (binding("or", prefixed=True), "/kafka-acl-extended/prefixed/Topic/or"),
        (binding("kafka-cluster", kind=ResourceType.CLUSTER), "/kafka-acl/Cluster/kafka-cluster"),
        (binding("x", kind=ResourceType.TRANSACTIONAL_ID), "/kafka-acl/TransactionalId/x"),
        (binding("a/b c%", kind=ResourceType.GROUP), "/kafka-acl/Group/a%2Fb%20c%25"),
        (binding("..", kind=ResourceType.GROUP), "/kafka-acl/Group/%2E%2E"),
        (binding("ü", kind=ResourceType.USER, prefixed=True), "/kafka-acl-extended/prefixed/User/%C3%BC"),
    ],
)
def test_where_a_list_is(wanted: AclBinding, path: str) -> None:
    assert acl_path(wanted.pattern) == path
    assert pattern_of(path) == wanted.pattern


def test_the_value_is_apache_kafkas() -> None:
    assert json.loads(acl_value([READ])) == {
        "version": 1,
        "acls": [{"principal": "User:alice", "permissionType": "Allow", "operation": "Read", "host": "*"}],
    }
    assert b'"operation":"DescribeConfigs"' in acl_value([READ._replace(operation=Operation.DESCRIBE_CONFIGS)])


def test_a_damaged_list_is_named() -> None:
    from oncelog.base.tree import TreeNode

    with pytest.raises(DamagedFact, match="/kafka-acl/Topic/t"):
        load_image([TreeNode("/kafka-acl/Topic/t", b'{"version":1,"acls":[{"principal":"User:a"}]}', 0)])


def test_made_and_removed_through_a_tree_and_read_again() -> None:
    tree = MemoryTree()
    session = tree.session()
    expected = [binding(), binding("t", READ._replace(operation=Operation.WRITE)), binding("p", prefixed=True)]
    decided = create_acls(EMPTY_IMAGE, expected)
    session.commit(decided.operations)
    assert decided.outcomes == [True, True, True]
    image = load_image(session.subtree("/"))
    assert image.acls == applied(EMPTY_IMAGE, decided.operations).acls
    assert acl_count(image) == 3
    again = create_acls(image, [expected[0]])
    assert (again.operations, again.outcomes) == ([], [False])
    removed = delete_acls(image, [expected[2], binding("not there")])
    assert removed.outcomes == [True, False]
    session.commit(removed.operations)
    image = load_image(session.subtree("/"))
    assert list(image.acls) == [expected[0].pattern]
    assert any(isinstance(operation, Delete) for operation in removed.operations), "an empty list has no node"


def test_a_decision_on_a_list_that_went_and_came_again_conflicts() -> None:
    """The node made anew stands at version 0, as the one that was decided on did."""
    session = MemoryTree().session()

    def now() -> ClusterImage:
        return load_image(session.subtree("/"))

    session.commit(create_acls(EMPTY_IMAGE, [binding()]).operations)
    late = create_acls(now(), [binding("t", READ._replace(principal="User:late"))])
    session.commit(delete_acls(now(), [binding()]).operations)
    session.commit(create_acls(now(), [binding("t", READ._replace(principal="User:bob"))]).operations)
    with pytest.raises(Conflict):
        session.commit(late.operations)
    assert [entry.principal for acls in now().acls.values() for entry in acls.entries] == ["User:bob"]


def test_both_of_two_who_change_a_list_at_once_succeed_one_after_the_other() -> None:
    session = MemoryTree().session()
    session.commit(create_acls(EMPTY_IMAGE, [binding()]).operations)
    image = load_image(session.subtree("/"))
    first, second = (create_acls(image, [binding("t", READ._replace(principal=f"User:{n}"))]) for n in (1, 2))
    session.commit(first.operations)
    with pytest.raises(Conflict):
        session.commit(second.operations)


def test_many_entries_are_commits_of_bounded_size_in_the_order_asked_for() -> None:
    expected = [binding(f"topic-{n % 50}", READ._replace(principal=f"User:{'x' * 300}{n}")) for n in range(2_500)]
    image, made = EMPTY_IMAGE, 0
    while made < len(expected):
        decided = create_acls(image, expected[made:])
        assert decided.outcomes, "each commit makes some"
        assert commit_size(decided.operations) <= MAX_COMMIT_BYTES
        image, made = applied(image, decided.operations), made + len(decided.outcomes)
        assert acl_count(image) == made
    gone = 0
    while gone < len(expected):
        decided = delete_acls(image, expected[gone:])
        assert commit_size(decided.operations) <= MAX_COMMIT_BYTES
        image, gone = applied(image, decided.operations), gone + len(decided.outcomes)
    assert image.acls == {}


def test_a_list_and_the_cluster_have_room_for_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    image, number = EMPTY_IMAGE, 0
    while True:
        expected = [binding("t", READ._replace(principal=f"User:{'x' * 2000}{number + n}")) for n in range(100)]
        decided = create_acls(image, expected)
        image, number = applied(image, decided.operations), number + 100
        assert commit_size(decided.operations) <= MAX_COMMIT_BYTES
        refused = [outcome for outcome in decided.outcomes if isinstance(outcome, Refusal)]
        if refused:
            break
    assert {item.error_code for item in refused} == {ErrorCode.POLICY_VIOLATION}
    monkeypatch.setattr(acl_changes, "MAX_ACLS", acl_count(image) + 1)
    outcomes = create_acls(image, [binding("u"), binding("v")]).outcomes
    assert outcomes == [True, acl_changes.FULL]


def test_matching_stops_behind_the_limit() -> None:
    image = applied(EMPTY_IMAGE, create_acls(EMPTY_IMAGE, [binding(f"t{n}") for n in range(10)]).operations)
    assert len(matching(image, lambda _: True, 5)) == 6
    assert matching(image, lambda item: item.pattern.name == "t3", 5) == [binding("t3")]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (binding("other", kind=ResourceType.CLUSTER), "The only valid name for the CLUSTER resource is kafka-cluster"),
        (binding(""), "Invalid empty resource name"),
        (binding(kind=ResourceType.ANY), "Invalid resourceType ANY"),
        (binding(entry=READ._replace(operation=Operation.ANY)), "Invalid operation ANY"),
        (binding(entry=READ._replace(permission=Permission.ANY)), "Invalid permissionType ANY"),
        (binding("x" * 4097), "The resource name is longer than 4096 characters"),
        (binding(entry=READ._replace(principal="User:" + "x" * 4097)), "The principal is longer than 4096 characters"),
        (binding(entry=READ._replace(host="x" * 256)), "The host is longer than 255 characters"),
    ],
)
def test_what_is_not_made(wanted: AclBinding, message: str) -> None:
    assert refusal_of(wanted) == Refusal(ErrorCode.INVALID_REQUEST, message)


def test_an_operation_that_is_not_the_resources_own_is_made() -> None:
    assert refusal_of(binding(entry=READ._replace(operation=Operation.IDEMPOTENT_WRITE))) is None


def test_parents_are_made_by_the_first_entry_and_never_again() -> None:
    first = create_acls(EMPTY_IMAGE, [binding()])
    image = applied(EMPTY_IMAGE, first.operations)
    second = create_acls(image, [binding("u")])
    assert sum(isinstance(operation, Create) for operation in first.operations) > 2
    assert sum(isinstance(operation, Create) for operation in second.operations) == 1

"""The script of the corpus: what is set up, and who asks what, in one order for both brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from tests.conformance.authorization.questions.asking import Known, make
from tests.conformance.authorization.questions.cluster import acl_filter
from tests.conformance.authorization.questions.shares import COORDINATED, SHARE
from tests.conformance.authorization.questions.table import QUESTIONS, versions_of
from tests.conformance.authorization.world import (
    ADMIN,
    DOOMED,
    ELSE,
    GROUP,
    HIDDEN,
    IN_EVERY_VERSION,
    PRINCIPALS,
    TOPIC,
    TRANSACTIONAL_ID,
)
from tests.peers.clients.sweep.wire import batch

Ask = Callable[[str, Any, int], Any]
"""Principal, request, version → the response, None where the connection was closed."""

_CHANGED_BY_BEING_ALLOWED: Final = {"delete-topics": DOOMED, "delete-topics-by-id": DOOMED}


class Answer(NamedTuple):
    """One answer of a broker, and what was asked by whom."""

    question: str
    principal: str
    version: int
    request: Any
    response: Any

    @property
    def label(self) -> str:
        """The place in the corpus."""
        return f"{self.question} v{self.version} by {self.principal}"


def answers(ask: Ask, only: str = "") -> Iterator[Answer]:
    """Set the broker up and ask everything, or only the questions whose names begin with ``only``."""
    known = Known()
    yield from _set_up(ask, known)
    for name, question in QUESTIONS.items():
        if not name.startswith(only):
            continue
        versions = versions_of(question, known)
        for principal in PRINCIPALS:
            for version in versions:
                if principal in IN_EVERY_VERSION or version in (versions[0], versions[-1]):
                    if name in _CHANGED_BY_BEING_ALLOWED:
                        yield from _create(ask, known, DOOMED)
                    request = question(version, known)
                    yield Answer(name, principal, version, request, ask(principal, request, version))
    if not only or only == "nonsense":
        yield from _nonsense(ask)


def _set_up(ask: Ask, known: Known) -> Iterator[Answer]:
    for name in (TOPIC, HIDDEN, ELSE, DOOMED):
        yield from _create(ask, known, name)
        records = make("produce.PartitionProduceData", index=0, records=batch(b"first"))
        data = make("produce.TopicProduceData", name=name, partition_data=[records])
        ask(ADMIN, make("produce.ProduceRequest", acks=-1, timeout_ms=5000, topic_data=[data]), 9)
    bindings = [binding for rights in PRINCIPALS.values() for binding in rights]
    creations = [
        make(
            "create_acls.AclCreation",
            resource_type=pattern.resource_type,
            resource_name=pattern.name,
            resource_pattern_type=pattern.pattern_type,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for pattern, entry in bindings
    ]
    created = ask(ADMIN, make("create_acls.CreateAclsRequest", creations=creations), 3)
    assert not any(result.error_code for result in created.results), created
    _open_transaction(ask, "open")
    for name in (GROUP, ELSE):
        _until(ask, make("find_coordinator.FindCoordinatorRequest", coordinator_keys=[name]), 4)
    _until(ask, make("find_coordinator.FindCoordinatorRequest", key_type=1, coordinator_keys=[TRANSACTIONAL_ID]), 4)
    _until(ask, make("find_coordinator.FindCoordinatorRequest", key_type=SHARE, coordinator_keys=[COORDINATED]), 6)
    listed = make("list_transactions.ListTransactionsRequest")
    assert ask(ADMIN, listed, 0).error_code == 0
    while ask(ADMIN, make("list_groups.ListGroupsRequest"), 4).error_code:
        pass
    _commit_elsewhere(ask)


def _open_transaction(ask: Ask, name: str) -> None:
    """A transaction with a partition of ``t`` and one of ``hidden``, that nobody ends."""
    requests = make("init_producer_id.InitProducerIdRequest", transactional_id=name, transaction_timeout_ms=800_000)
    while True:
        _until(ask, make("find_coordinator.FindCoordinatorRequest", key_type=1, coordinator_keys=[name]), 4)
        given = ask(ADMIN, requests, 4)
        if not given.error_code:
            break
    topics = [
        make("add_partitions_to_txn.AddPartitionsToTxnTopic", name=topic, partitions=[0]) for topic in (TOPIC, HIDDEN)
    ]
    added = make(
        "add_partitions_to_txn.AddPartitionsToTxnRequest",
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=given.producer_id,
        v3_and_below_producer_epoch=given.producer_epoch,
        v3_and_below_topics=topics,
    )
    while any(
        p.partition_error_code
        for t in ask(ADMIN, added, 3).results_by_topic_v3_and_below
        for p in t.results_by_partition
    ):
        pass


def _commit_elsewhere(ask: Ask) -> None:
    """Offsets of the group ``else``, in a topic that principals may see and in one that they may not."""
    part = make("offset_commit.OffsetCommitRequestPartition", partition_index=0, committed_offset=3)
    topics = [make("offset_commit.OffsetCommitRequestTopic", name=name, partitions=[part]) for name in (TOPIC, HIDDEN)]
    request = make("offset_commit.OffsetCommitRequest", group_id=ELSE, topics=topics)
    while any(p.error_code for t in ask(ADMIN, request, 8).topics for p in t.partitions):
        pass  # the coordinator is reading its log


def _create(ask: Ask, known: Known, name: str) -> Iterator[Answer]:
    """See to it that there is such a topic, and that it is known: later answers are compared by its id."""
    topic = make("create_topics.CreatableTopic", name=name, num_partitions=1, replication_factor=1)
    request = make("create_topics.CreateTopicsRequest", topics=[topic], timeout_ms=10_000)
    answer = Answer(f"create {name}", ADMIN, 7, request, ask(ADMIN, request, 7))
    yield answer
    created = answer.response.topics[0]
    if created.error_code:
        return  # it was not deleted
    known.topic_ids[name] = created.topic_id
    requests = make(
        "metadata.MetadataRequest",
        topics=[make("metadata.MetadataRequestTopic", name=name)],
        allow_auto_topic_creation=False,
    )
    while ask(ADMIN, requests, 12).topics[0].topic_id != created.topic_id:
        pass


def _until(ask: Ask, request: Any, version: int) -> None:
    while any(coordinator.error_code for coordinator in ask(ADMIN, request, version).coordinators):
        pass


def _nonsense(ask: Ask) -> Iterator[Answer]:
    """CreateAcls and DescribeAcls with every code that is no code of theirs."""
    right = {
        "resource_type": 2,
        "resource_name": "acl",
        "resource_pattern_type": 3,
        "principal": "User:somebody",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    wrong: list[dict[str, Any]] = [
        *({"resource_type": code} for code in (0, 1, 3, 4, 5, 6, 7, 8, 99)),
        *({"resource_pattern_type": code} for code in (0, 1, 2, 4, 5, 99)),
        *({"operation": code} for code in (0, 1, *range(2, 16), 16, 99)),
        *({"permission_type": code} for code in (0, 1, 2, 4, 99)),
        *({"principal": text} for text in ("", "somebody", "User:", ":", "Service:x", "User:*")),
        *({"host": text} for text in ("", "1.2.3.4", "host.name", "1.2.3.0/24")),
        {"resource_type": 4, "resource_name": "kafka-cluster"},
        {"resource_name": ""},
        {"resource_name": "a/b c"},
        {"resource_name": "x" * 300},
    ]
    for fields in wrong:
        creations = [make("create_acls.AclCreation", **item) for item in (right, {**right, **fields})]
        request = make("create_acls.CreateAclsRequest", creations=creations)
        label = ",".join(
            f"{key}={value:.20}" if isinstance(value, str) else f"{key}={value}" for key, value in fields.items()
        )
        yield Answer(f"nonsense {label}", ADMIN, 3, request, ask(ADMIN, request, 3))
    for kind, name, pattern, operation in (
        (2, "acl", 2, 1),
        (2, "acl", 1, 1),
        (2, "ac", 2, 1),
        (1, None, 1, 1),
        (4, None, 1, 3),
        (2, "acl", 3, 99),
        (99, "acl", 3, 1),
        (2, "acl", 4, 1),
        (2, None, 4, 1),
    ):
        result = acl_filter(kind, name, pattern, operation)
        request = make("describe_acls.DescribeAclsRequest", **result)
        place = f"{kind} {name} {pattern} {operation}"
        yield Answer(f"nonsense describe {place}", ADMIN, 3, request, ask(ADMIN, request, 3))
    every = make("delete_acls.DeleteAclsFilter", **acl_filter(2, "acl", 2))
    for version in (1, 2, 3):
        request = make("delete_acls.DeleteAclsRequest", filters=[every])
        yield Answer("nonsense delete", ADMIN, version, request, ask(ADMIN, request, version))

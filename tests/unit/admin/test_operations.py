"""Each operation of administration under both clients, against a broker: the same calls, the same results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from oncelog.admin import acls, cluster, cluster_status, configs, groups, reassignments, scram_users, topics
from oncelog.admin.broker_descriptions import describe_broker
from oncelog.admin.client_quotas import alter_quotas, entity_text, list_quotas, quotas_of
from oncelog.admin.configs import ResourceType
from oncelog.admin.decommission import MovesUnderWay, move_off, plan_decommission
from oncelog.admin.eligible_leaders import eligible_leaders
from oncelog.admin.explain import targets as subjects
from oncelog.admin.quorum import describe_quorum
from oncelog.admin.reassignment_plan import PlanRefused
from oncelog.admin.transactions import Verdict, abort, describe_transactions, find_hanging, find_one, list_transactions
from oncelog.admin.transactions.id_pages import page_of_ids, sorted_ids
from oncelog.admin.transactions.partition_offsets import bounds_of, read_starts
from oncelog.admin.transactions.producers import describe_producers
from oncelog.admin.transactions.readable_records import count_records
from oncelog.admin.transactions.termination import force_terminate
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.blocking import Client
from oncelog.client.errors import BrokerRefused, ClientError, UnknownTopic
from oncelog.client.machine.offsets import Committed
from oncelog.client.programs.group import commit_offsets
from oncelog.testing.broker import Broker
from tests.interop.admin.lab import ByHand

pytestmark = pytest.mark.slow
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as made:
        yield made


@pytest.fixture(scope="module", params=["blocking", "aio"])
def ask(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Ask]:
    """Calls an operation with one of the two clients; the result."""
    if request.param == "blocking":
        with Client(broker.bootstrap_servers) as client:
            yield lambda operation, *arguments, **options: operation(client, *arguments, **options)
        return
    with asyncio.Runner() as runner:
        async_client = AsyncClient(broker.bootstrap_servers)

        async def awaited(operation: Any, *arguments: Any, **options: Any) -> Any:
            return await operation(async_client, *arguments, **options)

        yield lambda *arguments, **options: runner.run(awaited(*arguments, **options))
        runner.run(async_client.close())


@pytest.fixture
def topic(ask: Ask) -> Iterator[TopicName]:
    made = ask(topics.create_topic, topics.NewTopic("t", 2, 1, {"retention.ms": "60000"}))
    assert (made.name, made.partitions, made.replication_factor) == ("t", 2, 1)
    yield TopicName("t")
    assert [item.error for item in ask(topics.delete_topics, ["t"])] == [None]


def at(index: int) -> TopicPartition:
    return TopicPartition(TopicName("t"), index)


def test_topics(ask: Ask, topic: TopicName) -> None:
    with pytest.raises(BrokerRefused) as refused:
        ask(topics.create_topic, topics.NewTopic("t", 2, 1))
    assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert "t" in [row.name for row in ask(topics.list_topics)]
    (described,) = ask(topics.describe_topics, ["t"])
    assert [(row.partition, row.earliest, row.latest) for row in described.partitions] == [(0, 0, 0), (1, 0, 0)]
    ask(topics.add_partitions, "t", 3)
    with pytest.raises(UnknownTopic):
        ask(topics.add_partitions, "missing", 3)
    assert ask(topics.delete_records, {at(0): -1}) == {at(0): 0}
    assert [item.error_code for item in ask(topics.delete_topics, ["missing"])] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]


def test_configs(ask: Ask, topic: TopicName) -> None:
    ask(configs.alter_configs, ResourceType.TOPIC, "t", change={"retention.ms": "70000"}, delete=["segment.bytes"])
    (row,) = ask(configs.describe_configs, ResourceType.TOPIC, "t", ["retention.ms"])
    assert (row.value, row.source, row.is_default) == ("70000", "topic", False)
    assert ask(configs.values_of, ResourceType.TOPIC, ["t", "missing"], "retention.ms") == {"t": "70000"}
    with pytest.raises(BrokerRefused):
        ask(configs.alter_configs, ResourceType.TOPIC, "t", change={"retention.ms": "x"})


def test_groups(ask: Ask, broker: Broker, topic: TopicName) -> None:
    with Client(broker.bootstrap_servers) as client:
        by_hand = ByHand(client, "ended")
        by_hand.begin(at(0))
        by_hand.end()
    ask(commit_offsets, "g", {at(0): Committed(1)})
    assert [row.group for row in ask(groups.list_groups)] == ["g"]
    described = ask(groups.describe_group, "g")
    assert (described.state, described.members) == ("Empty", [])
    (row,) = ask(groups.group_lag, described)
    assert (row.partition, row.committed, row.log_end, row.lag) == (0, 1, 2, 1)
    plan = ask(groups.plan_reset, "g", groups.ResetTo(latest=True))
    assert [(row.current, row.target) for row in plan] == [(1, 2)]
    ask(groups.execute_reset, "g", plan)
    assert ask(count_records, {at(0): 0}, {at(0): 2}) == {at(0): 1}
    report = ask(subjects.explain_group, "g")
    assert (report.subject, report.is_stuck, report.unanswered) == ("group g", False, [])
    assert [item.error for item in ask(groups.delete_offsets, "g", [at(0)])] == [None]
    assert [item.error for item in ask(groups.delete_groups, ["g"])] == [None]
    with pytest.raises(BrokerRefused):
        ask(groups.describe_group, "g")


def test_the_cluster(ask: Ask, topic: TopicName) -> None:
    status = ask(cluster_status.cluster_status)
    assert (status.problems, len(status.brokers), status.brokers[0].state) == ([], 1, "up")
    assert [row.broker_id for row in ask(cluster.registered_brokers)] == [status.brokers[0].broker_id]
    assert [row.broker_id for row in ask(cluster.describe_cluster).brokers] == [status.brokers[0].broker_id]
    assert {row.partition for row in ask(cluster.describe_log_dirs, ["t"])} == {0, 1}
    assert ask(reassignments.list_reassignments) == []
    outcomes = ask(reassignments.elect_leaders, reassignments.Election.PREFERRED, [at(0)])
    assert [outcome.error for outcome in outcomes] == [None]
    mine = status.brokers[0].broker_id
    with pytest.raises(PlanRefused):
        ask(plan_decommission, mine)
    departure, refused = ask(move_off, mine + 1, 5, MovesUnderWay())
    assert (departure.left, refused) == (0, [])
    ask(reassignments.throttle, {at(0): ([mine], [mine])}, 1000)
    assert ask(reassignments.unthrottle, ["t"], [mine]) == (["t"], [mine])


def test_rights(ask: Ask) -> None:
    assert ask(scram_users.list_credentials) == []
    with pytest.raises(BrokerRefused) as refused:
        ask(acls.list_acls)
    assert refused.value.code == ErrorCode.SECURITY_DISABLED


def test_transactions(ask: Ask, broker: Broker, topic: TopicName) -> None:
    with Client(broker.bootstrap_servers) as client:
        ByHand(client, "open").begin(at(0))
    assert "open" in [row.transactional_id for row in ask(list_transactions).rows]
    assert [row.transactional_id for row in ask(sorted_ids)] == [row.transactional_id for row in ask(page_of_ids).rows]
    assert ask(describe_transactions, ["open"]).rows["open"].is_open
    ask(topics.describe_topics, ["t"])  # the view has the topic of the test before
    (producer,) = ask(describe_producers, [at(0)], open_only=True).rows
    assert producer.start_offset == 0
    assert ask(read_starts, [(at(0), 0)])[at(0), 0].problem is None
    bounds, unanswered = ask(bounds_of, [at(0)])
    assert (bounds[at(0)].held, unanswered) == (1, [])
    transaction = ask(find_one, at(0), 0)
    assert (transaction.verdict, ask(find_hanging)) == (Verdict.LIVE, [])
    assert ask(abort, transaction).error.startswith("it is live")
    assert len(ask(subjects.explain_topic, "t").transactions) == 1
    assert not ask(force_terminate, "open").after.is_open
    with pytest.raises(ClientError, match="none is open there"):
        ask(find_one, at(0), 0)


def test_quotas_of_an_entity_are_set_listed_and_removed(ask: Ask) -> None:
    entity, default = (("client-id", "etl"), ("user", "dan")), (("user", None),)
    ask(alter_quotas, entity, {"producer_byte_rate": 2048.0, "request_percentage": 12.5})
    ask(alter_quotas, default, {"consumer_byte_rate": 4096.0})
    ask(alter_quotas, entity, {"producer_byte_rate": 1.0}, validate_only=True)
    rows = ask(list_quotas)
    assert [(row.entity, dict(row.values)) for row in rows] == [
        (entity, {"producer_byte_rate": 2048.0, "request_percentage": 12.5}),
        (default, {"consumer_byte_rate": 4096.0}),
    ]
    assert [row.entity for row in ask(list_quotas, "client-id")] == [entity]
    assert ask(quotas_of, default) == {"consumer_byte_rate": 4096.0}
    assert ask(quotas_of, (("user", "dan"),)) == {}, "of exactly this entity"
    assert entity_text((*entity, *default)) == "client-id 'etl', user 'dan', user default"
    with pytest.raises(BrokerRefused):
        ask(alter_quotas, entity, {"moon": 1.0})
    ask(alter_quotas, entity, delete=("producer_byte_rate", "request_percentage"))
    ask(alter_quotas, default, delete=("consumer_byte_rate",))
    assert ask(list_quotas) == []


def test_a_broker_is_described_as_far_as_it_answers(ask: Ask, topic: TopicName) -> None:
    (broker_id,) = [row.broker_id for row in ask(cluster.registered_brokers)]
    described = ask(describe_broker, broker_id)
    assert (described.is_controller, described.quorum_lag, described.unanswered) == (True, None, [])
    assert topic in {row.topic for row in described.topics}
    assert described.leads == sum(row.leads for row in described.topics)
    assert described.configs
    assert described.directories[0].error is None
    assert all(feature.lowest <= (feature.finalized or 0) <= feature.highest for feature in described.features)
    with pytest.raises(BrokerRefused, match="the cluster has brokers"):
        ask(describe_broker, 77)


def test_a_cluster_without_kraft_has_no_quorum_and_no_eligible_leaders(ask: Ask, topic: TopicName) -> None:
    assert ask(describe_quorum) is None
    assert ask(eligible_leaders, [TopicPartition(topic, 0)]) == {}

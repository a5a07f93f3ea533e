"""A request of tens of thousands of items leaves others their turn, and is answered as if it had not been cut up."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.handlers import list_groups
from oncelog.node import large_answers
from oncelog.node.events import Continue, Continued
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest
from oncelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.wire.messages.describe_groups import DescribeGroupsRequest
from oncelog.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.scenario.node.driver import Driver
from tests.scenario.node.requests import create_topic

MANY = 12_000


class Turns(Driver):
    """Counts the turns that others had; ``between`` runs in each."""

    def __init__(self) -> None:
        self.turns = 0
        self.between = lambda: None
        super().__init__()

    def _event_of(self, effect):
        if isinstance(effect, Continue):
            self.turns += 1
            self.between()
            return Continued()
        return super()._event_of(effect)


@pytest.fixture
def driver() -> Turns:
    return Turns()


def topics(count: int) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=f"t{number}") for number in range(count)]


@pytest.mark.slow
def test_others_are_answered_between_the_parts_of_a_large_request(driver):
    large, small = driver.connect(), driver.connect()
    create_topic(large, "t7")
    answered = []

    def ask() -> None:
        driver.between = lambda: None
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="t7")], allow_auto_topic_creation=False)
        answered.append(small.ask(asked, 9).topics[0].error_code)
        assert not large.responses

    driver.between = ask
    driver.turns = 0
    response = large.ask(MetadataRequest(topics=topics(MANY), allow_auto_topic_creation=False), 9)
    assert answered == [0]
    assert driver.turns >= MANY // 1000
    assert [topic.name for topic in response.topics] == [f"t{number}" for number in range(MANY)]
    assert [topic.name for topic in response.topics if topic.error_code == 0] == ["t7"]


@pytest.mark.slow
def test_what_is_named_twice_is_found_wherever_it_stands(driver):
    peer = driver.connect()
    names = [ListOffsetsTopic(name=f"t{number}", partitions=[ListOffsetsPartition()]) for number in range(MANY)]
    again = ListOffsetsTopic(name="t1", partitions=[ListOffsetsPartition()])
    create_topic(peer, "t1")
    response = peer.ask(ListOffsetsRequest(replica_id=-1, topics=[*names, again]), 5)
    assert len(response.topics) == MANY
    found = {topic.name: topic.partitions for topic in response.topics}
    assert [partition.error_code for partition in found["t1"]] == [ErrorCode.INVALID_REQUEST]


@pytest.mark.slow
def test_too_many_topics_are_not_created_a_part_at_a_time(driver):
    peer = driver.connect()
    response = peer.ask(MetadataRequest(topics=topics(MANY), allow_auto_topic_creation=True), 9)
    assert {topic.error_code for topic in response.topics} == {ErrorCode.POLICY_VIOLATION}
    wanted = [CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1) for number in range(MANY)]
    created = peer.ask(CreateTopicsRequest(topics=wanted, timeout_ms=1000), 5)
    assert {topic.error_code for topic in created.topics} == {ErrorCode.POLICY_VIOLATION}
    assert not driver.node.image.topics


@pytest.mark.slow
def test_one_resource_of_an_unknown_type_refuses_them_all(driver):
    peer = driver.connect()
    known = [DescribeConfigsResource(resource_type=2, resource_name=f"t{number}") for number in range(MANY)]
    unknown = DescribeConfigsResource(resource_type=99, resource_name="what")
    assert {each.error_code for each in peer.ask(DescribeConfigsRequest(resources=known), 4).results} == {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    refused = peer.ask(DescribeConfigsRequest(resources=[*known, unknown]), 4)
    assert {each.error_code for each in refused.results} == {ErrorCode.INVALID_REQUEST}


def test_a_handler_that_asks_coordinators_one_by_one_takes_turns(driver):
    peer = driver.connect()
    peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    driver.turns = 0
    response = peer.ask(DescribeGroupsRequest(groups=[f"g{number}" for number in range(5000)]), 5)
    assert len(response.groups) == 5000
    assert driver.turns >= 5000 // 500


def test_a_client_that_leaves_takes_its_large_request_with_it(driver):
    peer, other = driver.connect(), driver.connect()

    def leave() -> None:
        driver.between = lambda: None
        driver.disconnect(peer)

    driver.between = leave
    driver.turns = 0
    peer.send(DeleteTopicsRequest(topic_names=[f"t{number}" for number in range(MANY)], timeout_ms=1000), 5)
    assert driver.turns < 3
    assert other.ask(MetadataRequest(topics=[]), 9).topics == []
    assert driver.fatal is None
    assert not driver.reports


def test_the_answer_to_all_topics_is_encoded_in_turns_once_and_shared(driver, monkeypatch):
    monkeypatch.setattr(large_answers, "FEW", 10)
    monkeypatch.setattr(large_answers, "SLICE_BYTES", 100)
    peer = driver.connect()
    wanted = [CreatableTopic(name=f"t{number:03}", num_partitions=2, replication_factor=1) for number in range(30)]
    peer.ask(CreateTopicsRequest(topics=wanted, timeout_ms=1000), 5)
    driver.turns = 0
    first = peer.ask(MetadataRequest(topics=None), 9)
    turns = driver.turns
    assert turns >= 1
    assert peer.ask(MetadataRequest(topics=None), 9) == first
    assert driver.turns == turns
    assert [topic.name for topic in first.topics] == [f"t{number:03}" for number in range(30)]
    assert {len(topic.partitions) for topic in first.topics} == {2}


def test_many_groups_are_listed_in_turns(driver, monkeypatch):
    monkeypatch.setattr(list_groups, "_GROUPS_A_TURN", 2)
    peer = driver.connect()
    create_topic(peer, "t")
    peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    names = [f"g{number}" for number in range(7)]
    for name in names:
        partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=0)]
        topic = OffsetCommitRequestTopic(name="t", partitions=partitions)
        peer.ask(OffsetCommitRequest(group_id=name, generation_id_or_member_epoch=-1, topics=[topic]), 7)
    driver.turns = 0
    response = peer.ask(ListGroupsRequest(), 4)
    assert sorted(group.group_id for group in response.groups) == names
    assert driver.turns == 4
    assert not peer.ask(ListGroupsRequest(states_filter=["Stable"]), 4).groups


def test_a_page_of_many_topics_is_described_in_turns(driver):
    peer = driver.connect()
    create_topic(peer, "t7")
    asked = [TopicRequest(name=f"t{number}") for number in range(3000)]
    driver.turns = 0
    response = peer.ask(DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=2000), 0)
    assert driver.turns >= 3
    assert [topic.name for topic in response.topics] == sorted(topic.name for topic in asked)
    assert [topic.name for topic in response.topics if topic.error_code == 0] == ["t7"]

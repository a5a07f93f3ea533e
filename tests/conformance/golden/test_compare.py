"""The comparison itself: it finds what differs, and lets pass only what may."""

from __future__ import annotations

from oncelog.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from oncelog.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from oncelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from tests.conformance.golden.compare import Translation, differences
from tests.peers.clients.sweep.wire import batch


def _metadata(*names: str, first_id: int = 1, host: str = "here") -> MetadataResponse:
    topics = [MetadataResponseTopic(name=name, topic_id=bytes([first_id + n]) * 16) for n, name in enumerate(names)]
    return MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host=host, port=9)], topics=topics)


def test_addresses_and_ids_may_differ_and_order_does_not_matter() -> None:
    theirs, ours = _metadata("a", "b"), _metadata("b", "a", first_id=7, host="there")
    assert list(differences("Metadata", theirs, ours, Translation())) == []


def test_a_field_that_differs_is_named_with_both_values() -> None:
    theirs, ours = _metadata("a"), _metadata("a")
    ours.topics[0].error_code = 3
    assert list(differences("Metadata", theirs, ours, Translation())) == [
        "topics[a].error_code: 3, Apache Kafka 0",
    ]


def test_missing_and_additional_elements_are_found() -> None:
    result = list(differences("Metadata", _metadata("a", "b"), _metadata("a"), Translation()))
    assert result == ["topics: 1 elements, Apache Kafka 2", "topics[b]: missing"]


def test_an_id_that_changes_its_meaning_is_found() -> None:
    translation = Translation()
    assert list(differences("Metadata", _metadata("a"), _metadata("a", first_id=9), translation)) == []
    assert len(list(differences("Metadata", _metadata("a"), _metadata("a", first_id=8), translation))) == 1


def test_requests_are_rewritten_with_the_ids_learned() -> None:
    translation = Translation()
    list(differences("Metadata", _metadata("a"), _metadata("a", first_id=9), translation))
    request = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=b"\1" * 16)])
    translation.rewrite(request)
    assert request.topics is not None
    assert request.topics[0].topic_id == b"\x09" * 16


def test_a_leader_is_a_member() -> None:
    theirs = JoinGroupResponse(leader="m1", member_id="m1", members=[JoinGroupResponseMember(member_id="m1")])
    ours = JoinGroupResponse(leader="x", member_id="x", members=[JoinGroupResponseMember(member_id="x")])
    assert list(differences("JoinGroup", theirs, ours, Translation())) == []
    ours.leader = "y"
    assert list(differences("JoinGroup", theirs, ours, Translation()))


def _fetched(records: bytes) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(records=records)])])


def test_records_are_compared_byte_by_byte_but_for_the_leader_epoch_and_a_torn_end() -> None:
    whole = batch(b"v", leader_epoch=0)
    same = batch(b"v", leader_epoch=5) + whole[:30]
    assert list(differences("Fetch", _fetched(whole), _fetched(same), Translation())) == []
    assert list(differences("Fetch", _fetched(whole), _fetched(batch(b"w")), Translation()))
    assert list(differences("Fetch", _fetched(whole), _fetched(b""), Translation()))

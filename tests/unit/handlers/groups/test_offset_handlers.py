"""Answers of the group APIs about offsets, by version.

Forms and codes are as Apache Kafka 4.3.1 gave them to the same raw requests.
"""

from __future__ import annotations

from typing import Any

from oncelog.base.errors import ErrorCode as E
from oncelog.handlers.api import Operation
from oncelog.wire.messages import offset_commit as oc
from oncelog.wire.messages import offset_fetch as of
from tests.unit.handlers.groups.bench import T_ID, Bench, image, topic


class TestOffsetCommit:
    """KIP-848's version 9, topic ids of version 10."""

    def test_unknown_topics_and_partitions(self, bench: Bench) -> None:
        assert bench.commit(topic="nope") == [("nope", bytes(16), 0, E.UNKNOWN_TOPIC_OR_PARTITION)]
        assert bench.commit(partition_index=7) == [("t", bytes(16), 7, E.UNKNOWN_TOPIC_OR_PARTITION)]
        assert bench.commit(partition_index=-1) == [("t", bytes(16), -1, E.UNKNOWN_TOPIC_OR_PARTITION)]
        assert bench.commit(10, topic_id=bytes(16)) == [("", bytes(16), 0, E.UNKNOWN_TOPIC_ID)]
        assert bench.commit(10, topic_id=b"x" * 16) == [("", b"x" * 16, 0, E.UNKNOWN_TOPIC_ID)]
        assert bench.commit(10) == [("", T_ID, 0, E.NONE)]

    def test_the_empty_group_id_is_a_group(self, bench: Bench) -> None:
        assert bench.commit(group="") == [("t", bytes(16), 0, E.NONE)]

    def test_a_generation_without_a_group(self, bench: Bench) -> None:
        who: dict[str, Any] = {"member_id": "x", "generation_id_or_member_epoch": 1}
        assert bench.commit(8, **who)[0][3] == E.ILLEGAL_GENERATION
        assert bench.commit(9, **who)[0][3] == E.GROUP_ID_NOT_FOUND

    def test_metadata_is_counted_in_characters(self, bench: Bench) -> None:
        assert bench.commit(committed_metadata="é" * 4096)[0][3] == E.NONE
        assert bench.commit(committed_metadata="x" * 4097)[0][3] == E.OFFSET_METADATA_TOO_LARGE

    def test_refused_partitions_come_first_and_topics_once(self, bench: Bench) -> None:
        requests = (("t", 0), ("t", 5), ("zz", 1), ("u", 0), ("t", 1))
        topics = [
            oc.OffsetCommitRequestTopic(
                name=n,
                topic_id=bytes(16),
                partitions=[oc.OffsetCommitRequestPartition(partition_index=p, committed_offset=1)],
            )
            for n, p in requests
        ]
        reply = bench.ask(oc.OffsetCommitRequest(group_id="g", topics=topics), 9)
        assert [(t.name, [(p.partition_index, p.error_code) for p in t.partitions]) for t in reply.topics] == [
            ("t", [(5, 3), (0, 0), (1, 0)]),
            ("zz", [(1, 3)]),
            ("u", [(0, 0)]),
        ]

    def test_nothing_to_commit(self, bench: Bench) -> None:
        assert bench.ask(oc.OffsetCommitRequest(group_id="g"), 9) == oc.OffsetCommitResponse()

    def test_authorisation_and_coordinator(self, bench: Bench) -> None:
        bench.refusal = E.NOT_COORDINATOR
        assert bench.commit()[0][3] == E.NOT_COORDINATOR
        bench.authoriser.denied.add((Operation.READ, "t"))
        assert bench.commit()[0][3] == E.TOPIC_AUTHORIZATION_FAILED
        bench.authoriser.denied.add((Operation.READ, "g"))
        assert bench.commit(10) == [("", T_ID, 0, E.GROUP_AUTHORIZATION_FAILED)]


class TestOffsetFetch:
    """KIP-709's several groups, topic ids of version 10."""

    def test_what_was_not_committed_is_minus_one_without_an_error(self, bench: Bench) -> None:
        bench.commit()
        reply = bench.fetch(1, [("t", T_ID, [0, 1, 5]), ("nope", b"x" * 16, [0])])
        result = [
            (t.name, p.partition_index, p.committed_offset, p.error_code) for t in reply.topics for p in t.partitions
        ]
        assert result == [("t", 0, 5, 0), ("t", 1, -1, 0), ("t", 5, -1, 0), ("nope", 0, -1, 0)]

    def test_null_topics_ask_for_everything(self, bench: Bench) -> None:
        bench.commit(committed_metadata="m", committed_leader_epoch=3)
        partition = of.OffsetFetchResponsePartition(
            partition_index=0, committed_offset=5, committed_leader_epoch=-1, metadata="m", error_code=0
        )
        assert bench.fetch(2, None).topics == [of.OffsetFetchResponseTopic(name="t", partitions=[partition])]
        (topic_of_ten,) = bench.fetch(10, None).groups[0].topics
        assert (topic_of_ten.topic_id, topic_of_ten.partitions[0].committed_leader_epoch) == (T_ID, 3)
        assert bench.fetch(5, None, group="unknown") == of.OffsetFetchResponse()
        assert bench.fetch(8, []).groups == [of.OffsetFetchResponseGroup(group_id="g")]

    def test_ids_that_do_not_exist(self, bench: Bench) -> None:
        bench.commit()
        (group,) = bench.fetch(10, [("", b"x" * 16, [0]), ("", T_ID, [0, 9]), ("", bytes(16), [1])]).groups
        result = [
            (t.topic_id, p.partition_index, p.committed_offset, p.error_code)
            for t in group.topics
            for p in t.partitions
        ]
        unknown = E.UNKNOWN_TOPIC_ID
        assert result == [(T_ID, 0, 5, 0), (T_ID, 9, -1, 0), (b"x" * 16, 0, -1, unknown), (bytes(16), 1, -1, unknown)]

    def test_an_offset_of_an_earlier_topic_of_the_name_is_not_shown(self, bench: Bench) -> None:
        bench.commit()
        bench.image = image(topic("t", b"T" * 16, 2))
        (group,) = bench.fetch(10, [("", b"T" * 16, [0])]).groups
        assert group.topics[0].partitions[0].committed_offset == -1

    def test_a_topic_that_is_gone_has_no_place_in_version_10_only_if_it_had_no_id(self, bench: Bench) -> None:
        bench.commit()
        bench.driver.commit({0: 1}, topic="old")
        bench.image = image()
        assert [item.topic_id for item in bench.fetch(10, None).groups[0].topics] == [T_ID]
        assert [entry.name for entry in bench.fetch(9, None).groups[0].topics] == ["t", "old"]

    def test_errors_of_the_group_by_version(self, bench: Bench) -> None:
        bench.refusal = E.NOT_COORDINATOR
        for version in range(1, 8):
            response = bench.fetch(version, [("t", T_ID, [0])])
            assert [partition.error_code for partition in response.topics[0].partitions] == [E.NOT_COORDINATOR]
            assert response.error_code == (E.NOT_COORDINATOR if version >= 2 else E.NONE)
        assert bench.fetch(2, None) == of.OffsetFetchResponse(error_code=E.NOT_COORDINATOR)
        assert bench.fetch(8, [("t", T_ID, [0])]).groups == [
            of.OffsetFetchResponseGroup(group_id="g", topics=[], error_code=E.NOT_COORDINATOR)
        ]
        bench.authoriser.denied.add((Operation.DESCRIBE, "g"))
        assert bench.fetch(2, None).error_code == E.GROUP_AUTHORIZATION_FAILED

    def test_topics_one_may_not_see_are_refused_by_name_and_left_out_of_everything(self, bench: Bench) -> None:
        bench.commit()
        bench.authoriser.denied.add((Operation.DESCRIBE, "t"))
        (refused,) = bench.fetch(5, [("t", T_ID, [0])]).topics
        assert refused.partitions[0].error_code == E.TOPIC_AUTHORIZATION_FAILED
        assert bench.fetch(5, None).topics == []

"""What the group APIs answer, by version: forms and codes as Apache Kafka 4.3.1 gave them to the same raw requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import CONSUMER_OFFSETS, TRANSACTION_STATE, BrokerId, LeaderEpoch, TopicId, TopicName
from oncelog.core.controller.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from oncelog.core.groups.shard import GroupShard
from oncelog.handlers import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.context import Context, CoordinatorRefusal
from oncelog.handlers.waits import Coordinate
from oncelog.wire.messages import delete_groups as dg
from oncelog.wire.messages import describe_groups as d
from oncelog.wire.messages import find_coordinator as fc
from oncelog.wire.messages import heartbeat as h
from oncelog.wire.messages import join_group as j
from oncelog.wire.messages import leave_group as lv
from oncelog.wire.messages import list_groups as lg
from oncelog.wire.messages import offset_commit as oc
from oncelog.wire.messages import offset_delete as od
from oncelog.wire.messages import offset_fetch as of
from oncelog.wire.messages import sync_group as s
from tests.scenario.groups.driver import Driver, subscription

HANDLERS = {
    j.JoinGroupRequest: join_group,
    s.SyncGroupRequest: sync_group,
    h.HeartbeatRequest: heartbeat,
    lv.LeaveGroupRequest: leave_group,
    oc.OffsetCommitRequest: offset_commit,
    of.OffsetFetchRequest: offset_fetch,
    od.OffsetDeleteRequest: offset_delete,
    d.DescribeGroupsRequest: describe_groups,
    lg.ListGroupsRequest: list_groups,
    dg.DeleteGroupsRequest: delete_groups,
    fc.FindCoordinatorRequest: find_coordinator,
}
ME = BrokerId(1)
T_ID, U_ID = TopicId(b"t" * 16), TopicId(b"u" * 16)


def topic(name: str, topic_id: bytes, partitions: int, leader: int = ME) -> TopicImage:
    """A topic led by one broker."""
    partition = PartitionImage(BrokerId(leader), LeaderEpoch(0), (ME,), (ME,))
    return TopicImage(TopicName(name), TopicId(topic_id), (partition,) * partitions)


def image(*topics: TopicImage) -> ClusterImage:
    """A cluster with these topics; broker 2 is another one."""
    return ClusterImage(
        topics={each.name: each for each in topics},
        topic_names={each.topic_id: each.name for each in topics},
        brokers={BrokerId(2): BrokerImage(BrokerId(2), "other", 9, None, 0)},
    )


class Authoriser:
    """Denies what it is told to deny: pairs of operation and resource name."""

    def __init__(self) -> None:
        self.denied: set[tuple[Operation, str]] = set()

    def allows(self, principal: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        """See ``handlers.context.Authoriser``."""
        return (operation, name) not in self.denied


class Bench:
    """The handlers on one shard."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.driver.settings.initial_rebalance_delay_ms = 0
        self.image = image(topic("t", T_ID, 2), topic("u", U_ID, 1), topic(CONSUMER_OFFSETS, b"o" * 16, 1))
        self.refusal = E.NONE
        self.authoriser = Authoriser()
        self.client_id: str | None = "probe"
        self.context: Context | None = None

    broker_id = ME

    def random_bytes(self, size: int) -> bytes:
        """Ids that differ."""
        self.driver.ids += 1
        return self.driver.ids.to_bytes(size, "big")

    def group_shards(self) -> Iterable[GroupShard]:
        """See ``handlers.context.Broker``."""
        return [self.driver.shard]

    def ask(self, request: Any, version: int) -> Any:
        """The response after a trip through both directions of the wire; None when parked."""
        request = type(request).decode(b"".join(bytes(chunk) for chunk in request.encode(version)), version)
        broker: Any = self
        context = Context(
            broker, self.authoriser, request.API_KEY, version, 1, self.client_id, "/127.0.0.1", "me", ("me", 9092), 0
        )
        handled = HANDLERS[type(request)].handle(request, context)
        response = self.drive(handled) if isinstance(handled, Iterator) else handled
        if response is None:
            return None
        return type(response).decode(b"".join(bytes(chunk) for chunk in response.encode(version)), version)

    def drive(self, steps: Any) -> Any:
        """Run a handler that waits for decisions of the shard."""
        try:
            wait = next(steps)
            while True:
                assert isinstance(wait, Coordinate)
                if self.refusal is not E.NONE:
                    wait = steps.throw(CoordinatorRefusal(self.refusal))
                    continue
                token = self.driver.token()
                self.driver.carry_out(wait.decide(self.driver.shard, token, self.driver.now_ms), token)
                self.driver.advance(0)
                if token not in self.driver.replies:
                    return None
                wait = steps.send(self.driver.replies[token])
        except StopIteration as stopped:
            return stopped.value

    # Requests in short

    def join(self, member_id: str = "", version: int = 9, group: str = "g", instance: str | None = None) -> Any:
        """JoinGroup with one protocol."""
        request = j.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=member_id,
            group_instance_id=instance if version >= 5 else None,
            protocol_type="consumer",
            protocols=[j.JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
        )
        return self.ask(request, version)

    def stable(self, instance: str | None = None) -> str:
        """A Stable group ``g`` of one member; its id."""
        member_id = self.join(instance=instance).member_id
        if instance is None:
            self.join(member_id)
        assigned = [s.SyncGroupRequestAssignment(member_id=member_id, assignment=b"as")]
        request = s.SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assigned,
        )
        assert self.ask(request, 5) == s.SyncGroupResponse(
            throttle_time_ms=0, error_code=0, protocol_type="consumer", protocol_name="range", assignment=b"as"
        )
        return str(member_id)

    def commit(self, version: int = 9, group: str = "g", **partition: Any) -> list[tuple[str, bytes, int, int]]:
        """OffsetCommit of t-0 unless said otherwise; name, id, partition and error of each partition answered."""
        name, topic_id = partition.pop("topic", "t"), partition.pop("topic_id", T_ID)
        who = {key: partition.pop(key) for key in ("member_id", "generation_id_or_member_epoch") if key in partition}
        part = oc.OffsetCommitRequestPartition(**{"partition_index": 0, "committed_offset": 5, **partition})
        topics = [
            oc.OffsetCommitRequestTopic(
                name=name if version < 10 else "", topic_id=topic_id if version > 9 else bytes(16), partitions=[part]
            )
        ]
        return flat(self.ask(oc.OffsetCommitRequest(group_id=group, topics=topics, **who), version))

    def fetch(self, version: int, topics: list[tuple[str, bytes, list[int]]] | None, group: str = "g") -> Any:
        """OffsetFetch."""
        if version < 8:
            old = (
                None
                if topics is None
                else [of.OffsetFetchRequestTopic(name=n, partition_indexes=parts) for n, _, parts in topics]
            )
            return self.ask(of.OffsetFetchRequest(group_id=group, topics=old), version)
        new = (
            None
            if topics is None
            else [
                of.OffsetFetchRequestTopics(
                    name=n if version < 10 else "", topic_id=i if version > 9 else bytes(16), partition_indexes=parts
                )
                for n, i, parts in topics
            ]
        )
        return self.ask(of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(group_id=group, topics=new)]), version)


def flat(response: oc.OffsetCommitResponse) -> list[tuple[str, bytes, int, int]]:
    """Name, id, partition and error of each partition."""
    return [(t.name, t.topic_id, p.partition_index, p.error_code) for t in response.topics for p in t.partitions]


@pytest.fixture
def bench() -> Bench:
    """The handlers on one empty shard."""
    return Bench()


class TestJoinGroup:
    """KIP-394, KIP-559, KIP-800."""

    @pytest.mark.parametrize(("version", "protocol_name"), [(4, ""), (6, ""), (7, None), (9, None)])
    def test_a_new_member_is_sent_back_with_its_id(self, bench: Bench, version: int, protocol_name: str | None) -> None:
        reply = bench.join(version=version)
        assert (reply.error_code, reply.generation_id, reply.protocol_name) == (E.MEMBER_ID_REQUIRED, -1, protocol_name)
        assert reply.member_id == "probe-00000000-0000-4000-8000-000000000001"

    @pytest.mark.parametrize("version", [0, 1, 3])
    def test_old_versions_join_at_once(self, bench: Bench, version: int) -> None:
        reply = bench.join(version=version)
        assert (reply.error_code, reply.generation_id, reply.protocol_name) == (E.NONE, 1, "range")
        assert reply.leader == reply.member_id == reply.members[0].member_id

    def test_a_client_without_a_name_has_an_empty_one(self, bench: Bench) -> None:
        bench.client_id = None
        assert bench.join().member_id.startswith("-0000")

    def test_static_members_are_named_after_their_instance(self, bench: Bench) -> None:
        assert bench.join(instance="i1").member_id.startswith("i1-0000")

    def test_version_0_has_one_timeout_for_session_and_rebalance(self, bench: Bench) -> None:
        bench.join(version=0)
        group: Any = bench.driver.shard._groups
        (member,) = group["g"].members.values()
        assert member.rebalance_timeout_ms == 10_000

    def test_refusals(self, bench: Bench) -> None:
        assert bench.join(group="").error_code == E.INVALID_GROUP_ID
        bench.client_id = "x" * 32767
        assert bench.join().error_code == E.UNKNOWN_SERVER_ERROR
        bench.refusal = E.COORDINATOR_LOAD_IN_PROGRESS
        bench.client_id = ""
        assert bench.join("m") == j.JoinGroupResponse(error_code=E.COORDINATOR_LOAD_IN_PROGRESS, protocol_name=None)
        bench.authoriser.denied.add((Operation.READ, "g"))
        assert bench.join().error_code == E.GROUP_AUTHORIZATION_FAILED


class TestSyncHeartbeatLeave:
    """KIP-345, KIP-559."""

    def test_from_version_5_on_the_protocol_must_be_said(self, bench: Bench) -> None:
        member_id = bench.stable()
        assert (
            bench.ask(s.SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id), 5).error_code
            == E.INCONSISTENT_GROUP_PROTOCOL
        )
        assert bench.ask(s.SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id), 3).assignment == b"as"
        wrong = s.SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="x",
        )
        assert bench.ask(wrong, 5).error_code == E.INCONSISTENT_GROUP_PROTOCOL

    def test_empty_group_ids(self, bench: Bench) -> None:
        assert (
            bench.ask(s.SyncGroupRequest(group_id="", generation_id=1, member_id="m"), 3).error_code
            == E.INVALID_GROUP_ID
        )
        assert (
            bench.ask(h.HeartbeatRequest(group_id="", generation_id=1, member_id="m"), 4).error_code
            == E.INVALID_GROUP_ID
        )
        assert bench.ask(lv.LeaveGroupRequest(group_id=""), 4).error_code == E.INVALID_GROUP_ID
        assert bench.ask(od.OffsetDeleteRequest(group_id=""), 0).error_code == E.INVALID_GROUP_ID

    def test_heartbeats_succeed_while_the_coordinator_loads(self, bench: Bench) -> None:
        bench.refusal = E.COORDINATOR_LOAD_IN_PROGRESS
        assert bench.ask(h.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4).error_code == E.NONE
        bench.refusal = E.NOT_COORDINATOR
        assert (
            bench.ask(h.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4).error_code
            == E.NOT_COORDINATOR
        )

    def test_leaving_says_one_error_up_to_version_2_and_one_a_member_since(self, bench: Bench) -> None:
        assert bench.ask(lv.LeaveGroupRequest(group_id="g", member_id="m"), 2).error_code == E.UNKNOWN_MEMBER_ID
        both = [
            lv.MemberIdentity(member_id="m", group_instance_id=None),
            lv.MemberIdentity(member_id="", group_instance_id="i"),
        ]
        reply = bench.ask(lv.LeaveGroupRequest(group_id="g", member_id="", members=both), 4)
        assert reply.error_code == E.NONE
        assert [m.error_code for m in reply.members] == [E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID]
        assert bench.ask(lv.LeaveGroupRequest(group_id="g", member_id=bench.stable()), 1).error_code == E.NONE


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
        asked = (("t", 0), ("t", 5), ("zz", 1), ("u", 0), ("t", 1))
        topics = [
            oc.OffsetCommitRequestTopic(
                name=n,
                topic_id=bytes(16),
                partitions=[oc.OffsetCommitRequestPartition(partition_index=p, committed_offset=1)],
            )
            for n, p in asked
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
        found = [
            (t.name, p.partition_index, p.committed_offset, p.error_code) for t in reply.topics for p in t.partitions
        ]
        assert found == [("t", 0, 5, 0), ("t", 1, -1, 0), ("t", 5, -1, 0), ("nope", 0, -1, 0)]

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
        found = [
            (t.topic_id, p.partition_index, p.committed_offset, p.error_code)
            for t in group.topics
            for p in t.partitions
        ]
        unknown = E.UNKNOWN_TOPIC_ID
        assert found == [(T_ID, 0, 5, 0), (T_ID, 9, -1, 0), (b"x" * 16, 0, -1, unknown), (bytes(16), 1, -1, unknown)]

    def test_an_offset_of_an_earlier_topic_of_the_name_is_not_shown(self, bench: Bench) -> None:
        bench.commit()
        bench.image = image(topic("t", b"T" * 16, 2))
        (group,) = bench.fetch(10, [("", b"T" * 16, [0])]).groups
        assert group.topics[0].partitions[0].committed_offset == -1

    def test_a_topic_that_is_gone_has_no_place_in_version_10_only_if_it_had_no_id(self, bench: Bench) -> None:
        bench.commit()
        bench.driver.commit({0: 1}, topic="old")
        bench.image = image()
        assert [each.topic_id for each in bench.fetch(10, None).groups[0].topics] == [T_ID]
        assert [each.name for each in bench.fetch(9, None).groups[0].topics] == ["t", "old"]

    def test_errors_of_the_group_by_version(self, bench: Bench) -> None:
        bench.refusal = E.NOT_COORDINATOR
        (old,) = bench.fetch(1, [("t", T_ID, [0])]).topics
        assert old.partitions[0].error_code == E.NOT_COORDINATOR
        assert bench.fetch(2, [("t", T_ID, [0])]) == of.OffsetFetchResponse(error_code=E.NOT_COORDINATOR)
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


class TestAdministration:
    """DescribeGroups, ListGroups, DeleteGroups, OffsetDelete."""

    def test_a_group_that_does_not_exist_is_dead_and_since_version_6_an_error(self, bench: Bench) -> None:
        request = d.DescribeGroupsRequest(groups=["x"], include_authorized_operations=True)
        dead = d.DescribedGroup(group_id="x", group_state="Dead", authorized_operations=3400)
        assert bench.ask(request, 5).groups == [dead]
        assert bench.ask(request, 6).groups == [
            d.DescribedGroup(
                error_code=E.GROUP_ID_NOT_FOUND, error_message="Group x not found.", group_id="x", group_state="Dead"
            )
        ]

    def test_a_described_group(self, bench: Bench) -> None:
        member_id = bench.stable()
        (group,) = bench.ask(d.DescribeGroupsRequest(groups=["g"], include_authorized_operations=True), 6).groups
        member = d.DescribedGroupMember(
            member_id=member_id,
            group_instance_id=None,
            client_id="probe",
            client_host="/127.0.0.1",
            member_metadata=subscription("t"),
            member_assignment=b"as",
        )
        assert group == d.DescribedGroup(
            error_code=0,
            error_message=None,
            group_id="g",
            group_state="Stable",
            protocol_type="consumer",
            protocol_data="range",
            members=[member],
            authorized_operations=3400,
        )
        bench.authoriser.denied.add((Operation.DELETE, "g"))
        (group,) = bench.ask(d.DescribeGroupsRequest(groups=["g"], include_authorized_operations=True), 6).groups
        assert group.authorized_operations == 3400 - (1 << 6)

    def test_groups_one_may_not_describe_come_first(self, bench: Bench) -> None:
        bench.authoriser.denied.add((Operation.DESCRIBE, "b"))
        groups = bench.ask(d.DescribeGroupsRequest(groups=["a", "b"]), 5).groups
        assert [(g.group_id, g.error_code) for g in groups] == [("b", E.GROUP_AUTHORIZATION_FAILED), ("a", E.NONE)]

    @pytest.mark.parametrize(
        ("states", "types", "found"),
        [
            ([], [], ["g", "s"]),
            (["stable"], [], ["g"]),
            (["Stable "], [], ["g"]),
            (["STABLE", "empty"], ["Classic"], ["g", "s"]),
            (["bogus"], [], []),
            ([], ["consumer"], []),
            ([], ["bogus"], []),
        ],
    )
    def test_filters_do_not_mind_case(
        self, bench: Bench, states: list[str], types: list[str], found: list[str]
    ) -> None:
        bench.stable()
        bench.commit(group="s")
        groups = bench.ask(lg.ListGroupsRequest(states_filter=states, types_filter=types), 5).groups
        assert [group.group_id for group in groups] == found

    def test_listed_groups_by_version_and_right(self, bench: Bench) -> None:
        bench.stable()
        assert bench.ask(lg.ListGroupsRequest(), 5).groups == [
            lg.ListedGroup(group_id="g", protocol_type="consumer", group_state="Stable", group_type="classic")
        ]
        assert bench.ask(lg.ListGroupsRequest(), 0).groups == [lg.ListedGroup(group_id="g", protocol_type="consumer")]
        bench.image = image(topic(CONSUMER_OFFSETS, b"o" * 16, 2))
        loading = bench.ask(lg.ListGroupsRequest(), 5)
        assert (loading.error_code, loading.groups) == (E.COORDINATOR_LOAD_IN_PROGRESS, [])
        bench.image = image()
        bench.authoriser.denied |= {(Operation.DESCRIBE, "kafka-cluster"), (Operation.DESCRIBE, "g")}
        assert bench.ask(lg.ListGroupsRequest(), 5).groups == []

    def test_deleting_groups(self, bench: Bench) -> None:
        bench.stable()
        bench.commit(group="s")
        bench.commit(group="")
        bench.authoriser.denied.add((Operation.DELETE, "mine"))
        reply = bench.ask(dg.DeleteGroupsRequest(groups_names=["mine", "s", "s", "nope", "", "g"]), 2)
        assert [(each.group_id, each.error_code) for each in reply.results] == [
            ("s", E.NONE),
            ("nope", E.GROUP_ID_NOT_FOUND),
            ("", E.NONE),
            ("g", E.NON_EMPTY_GROUP),
            ("mine", E.GROUP_AUTHORIZATION_FAILED),
        ]

    def test_deleting_offsets(self, bench: Bench) -> None:
        def delete(group: str, *asked: tuple[str, list[int]]) -> Any:
            topics = [
                od.OffsetDeleteRequestTopic(
                    name=name, partitions=[od.OffsetDeleteRequestPartition(partition_index=p) for p in parts]
                )
                for name, parts in asked
            ]
            reply = bench.ask(od.OffsetDeleteRequest(group_id=group, topics=topics), 0)
            return reply.error_code or [
                (t.name, [(p.partition_index, p.error_code) for p in t.partitions]) for t in reply.topics
            ]

        bench.commit(group="s")
        assert delete("s", ("t", [0, 7]), ("nope", [1])) == [("t", [(7, 3), (0, 0)]), ("nope", [(1, 3)])]
        assert delete("unknown", ("nope", [0])) == E.GROUP_ID_NOT_FOUND
        assert delete("s") == []
        bench.stable()
        assert delete("g", ("t", [0]), ("u", [0])) == [
            ("t", [(0, E.GROUP_SUBSCRIBED_TO_TOPIC)]),
            ("u", [(0, E.NONE)]),
        ]
        bench.authoriser.denied.add((Operation.READ, "t"))
        assert delete("g", ("t", [0])) == [("t", [(0, E.TOPIC_AUTHORIZATION_FAILED)])]


class TestFindCoordinator:
    """KIP-699's several keys, KIP-932's key type."""

    def test_the_leader_of_the_groups_partition(self, bench: Bench) -> None:
        assert bench.ask(fc.FindCoordinatorRequest(key="g"), 0) == fc.FindCoordinatorResponse(
            error_message="", node_id=1, host="me", port=9092
        )
        assert bench.ask(fc.FindCoordinatorRequest(key="g"), 3).error_message == "NONE"
        request = fc.FindCoordinatorRequest(key_type=0, coordinator_keys=["g", ""])
        assert bench.ask(request, 6).coordinators == [
            fc.Coordinator(key="g", node_id=1, host="me", port=9092, error_code=0, error_message=""),
            fc.Coordinator(key="", node_id=1, host="me", port=9092, error_code=0, error_message=""),
        ]
        bench.image = image(topic(CONSUMER_OFFSETS, b"o" * 16, 1, leader=2))
        assert bench.ask(request, 4).coordinators[0] == fc.Coordinator(
            key="g", node_id=2, host="other", port=9, error_code=0, error_message=""
        )
        bench.image = image(topic(CONSUMER_OFFSETS, b"o" * 16, 1, leader=3))
        missing = fc.Coordinator(
            key="g", node_id=-1, host="", port=-1, error_code=E.COORDINATOR_NOT_AVAILABLE, error_message=""
        )
        assert bench.ask(request, 4).coordinators[0] == missing

    def test_other_key_types(self, bench: Bench) -> None:
        bench.image = image(topic(TRANSACTION_STATE, b"x" * 16, 1, leader=9))  # which is gone

        def code(key_type: int, version: int) -> tuple[int, str]:
            request = fc.FindCoordinatorRequest(
                key="k", key_type=key_type, coordinator_keys=["k"] if version >= 4 else []
            )
            reply = bench.ask(request, version)
            found = reply.coordinators[0] if version >= 4 else reply
            assert (found.node_id, found.port) == (-1, -1)
            return found.error_code, found.error_message

        assert code(1, 3) == (E.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
        assert code(1, 4) == (E.COORDINATOR_NOT_AVAILABLE, "")
        assert code(2, 3)[0] == E.INVALID_REQUEST
        assert code(2, 6) == (E.INVALID_REQUEST, "")
        assert code(3, 6)[1].startswith("This most likely occurs")
        bench.authoriser.denied.add((Operation.DESCRIBE, "k"))
        assert code(0, 4)[0] == E.GROUP_AUTHORIZATION_FAILED
        assert code(1, 2)[0] == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_every_error_answered_is_documented() -> None:
    modules = SimpleNamespace(**{module.__name__: module for module in HANDLERS.values()})
    for module in vars(modules).values():
        assert all(isinstance(code, E) and when for code, when in module.ERRORS.items())

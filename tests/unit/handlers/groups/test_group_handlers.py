"""Answers of the group APIs about whole groups and their coordinators, by version.

Forms and codes are as Apache Kafka 4.3.1 gave them to the same raw requests.
"""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import CONSUMER_OFFSETS, TRANSACTION_STATE
from oncelog.handlers.api import Operation
from oncelog.wire.messages import delete_groups as dg
from oncelog.wire.messages import describe_groups as d
from oncelog.wire.messages import find_coordinator as fc
from oncelog.wire.messages import list_groups as lg
from oncelog.wire.messages import offset_delete as od
from tests.scenario.groups.driver import subscription
from tests.unit.handlers.groups.bench import Bench, image, topic


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
        assert [(result.group_id, result.error_code) for result in reply.results] == [
            ("s", E.NONE),
            ("nope", E.GROUP_ID_NOT_FOUND),
            ("", E.NONE),
            ("g", E.NON_EMPTY_GROUP),
            ("mine", E.GROUP_AUTHORIZATION_FAILED),
        ]
        newest = bench.ask(dg.DeleteGroupsRequest(groups_names=["mine", "nope", "g"]), 3)
        assert [result.error_message for result in newest.results] == [None] * 3

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
            coordinator = reply.coordinators[0] if version >= 4 else reply
            assert (coordinator.node_id, coordinator.port) == (-1, -1)
            return coordinator.error_code, coordinator.error_message

        assert code(1, 3) == (E.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
        assert code(1, 4) == (E.COORDINATOR_NOT_AVAILABLE, "")
        assert code(2, 3)[0] == E.INVALID_REQUEST
        assert code(2, 6) == (E.INVALID_REQUEST, "")
        assert code(3, 6)[1].startswith("This most likely occurs")
        bench.authoriser.denied.add((Operation.DESCRIBE, "k"))
        assert code(0, 4)[0] == E.GROUP_AUTHORIZATION_FAILED
        assert code(1, 2)[0] == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

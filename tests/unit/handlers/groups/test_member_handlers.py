"""Answers of the group APIs about members, by version.

Forms and codes are as Apache Kafka 4.3.1 gave them to the same raw requests.
"""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.handlers.api import Operation
from oncelog.handlers.registry import APIS
from oncelog.wire.messages import heartbeat as h
from oncelog.wire.messages import join_group as j
from oncelog.wire.messages import leave_group as lv
from oncelog.wire.messages import offset_delete as od
from oncelog.wire.messages import sync_group as s
from tests.unit.handlers.groups.bench import Bench


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


def test_every_error_answered_is_documented() -> None:
    for api in (api for api in APIS if api.handler.startswith("groups.")):
        assert all(isinstance(code, E) and when for code, when in api.load_errors().items())

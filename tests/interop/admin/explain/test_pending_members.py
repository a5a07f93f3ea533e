"""A member id that was given out and never used holds up a group (KIP-394, librdkafka #5569)."""

from __future__ import annotations

import threading

import pytest

from oncelog.admin.explain.findings import Cause, Finding, Severity
from oncelog.admin.explain.targets import explain_group
from oncelog.admin.explain.whole_cluster import explain_cluster
from oncelog.admin.group_descriptions import describe_group
from oncelog.base.errors import ErrorCode
from oncelog.client.blocking import Client
from oncelog.records.internal.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from oncelog.wire.messages.leave_group import LeaveGroupRequest
from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.interop.admin.conftest import FAST
from tests.interop.admin.explain.test_explain import topic as topic
from tests.waiting import HANG_S, wait_until

pytestmark = pytest.mark.slow
SESSION_MS = 60_000
_VERSION = 5


def join_request(group: str, topic: str, member_id: str) -> JoinGroupRequest:
    subscription = encode_subscription(Subscription((topic,)))
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
    )


def ask_for_id(client: Client, group: str, topic: str) -> str:
    """The answer to a first JoinGroup, once the coordinator has loaded the group."""
    ids: list[str] = []

    def is_given() -> bool:
        answer = client.link(client.coordinator(group)).call(join_request(group, topic, ""), _VERSION)
        ids.append(answer.member_id)
        return bool(answer.error_code == ErrorCode.MEMBER_ID_REQUIRED)

    wait_until(is_given, "a member id")
    return ids[-1]


class Member:
    """A member by hand, whose JoinGroup waits in a thread of its own."""

    def __init__(self, servers: str, group: str, topic: str, member_id: str) -> None:
        self.member_id = member_id
        self.client = Client(servers, config=FAST)
        self.answer: JoinGroupResponse | None = None
        self._link = self.client.link(self.client.coordinator(group))
        self._thread = threading.Thread(target=self._join, args=(join_request(group, topic, member_id),), daemon=True)
        self._thread.start()

    def _join(self, message: JoinGroupRequest) -> None:
        self.answer = self._link.call(message, _VERSION)

    def joined(self) -> JoinGroupResponse:
        self._thread.join(HANG_S)
        self.client.close()
        assert self.answer is not None
        return self.answer


def finding(client: Client, group: str, cause: Cause) -> Finding | None:
    return next((row for row in explain_group(client, group).findings if row.cause is cause), None)


def test_a_member_id_that_is_never_used_is_named(
    client: Client, servers: str, topic: str, request: pytest.FixtureRequest
) -> None:
    group, is_ours = f"g-{topic}", request.node.callspec.params["servers"] == "oncelog"
    coordinator = client.coordinator(group)
    first = Member(servers, group, topic, ask_for_id(client, group, topic))
    generation = first.joined().generation_id
    sync = SyncGroupRequest(group_id=group, generation_id=generation, member_id=first.member_id)
    sync.assignments = [
        SyncGroupRequestAssignment(member_id=first.member_id, assignment=encode_assignment(Assignment(())))
    ]
    client.link(coordinator).call(sync, 3)
    wait_until(lambda: describe_group(client, group).state == "Stable", "the first generation")

    lost, second = ask_for_id(client, group, topic), ask_for_id(client, group, topic)
    joining = Member(servers, group, topic, second)
    again = Member(servers, group, topic, first.member_id)
    wait_until(lambda: len(describe_group(client, group).members) == 2, "the rebalance")
    if is_ours:
        wait_until(lambda: not describe_group(client, group).awaited, "the other member")
        stalled = finding(client, group, Cause.PENDING_MEMBER)
        assert stalled is not None
        assert repr(lost) in stalled.sentences[0]
        assert "waits for 1 member id" in stalled.sentences[0]
        assert "(client 'oncelog' on 127.0.0.1)" in stalled.sentences[0]
    else:
        stalled = finding(client, group, Cause.REBALANCING)
        assert stalled is not None
        assert "KIP-394" in stalled.sentences[-1], "it may be"
    assert stalled.severity is Severity.STUCK
    client.link(coordinator).call(LeaveGroupRequest(group_id=group, member_id=first.member_id), 2)
    wait_until(lambda: [row.member_id for row in describe_group(client, group).members] == [second], "its departure")
    proven = finding(client, group, Cause.PENDING_MEMBER)
    assert proven is not None, "a new member has joined, and no other is left"
    listed = {row.name: row.cause for row in explain_cluster(client).problems}
    assert listed[group] is Cause.PENDING_MEMBER
    client.link(coordinator).call(LeaveGroupRequest(group_id=group, member_id=lost), 2)
    assert joining.joined().error_code == 0, "once the id is gone, as after its session"
    assert finding(client, group, Cause.PENDING_MEMBER) is None
    again.joined()

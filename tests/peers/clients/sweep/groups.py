"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups, DeleteGroups."""

from __future__ import annotations

from typing import Any, Final

from oncelog.wire.messages.delete_groups import DeleteGroupsRequest
from oncelog.wire.messages.describe_groups import DescribeGroupsRequest
from oncelog.wire.messages.heartbeat import HeartbeatRequest
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from oncelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.peers.clients.sweep.wire import Sweep, Wire, versions

SUBSCRIPTION: Final = b"\0\1\0\0\0\1\0\6sg-one\xff\xff\xff\xff\0\0\0\0"
ASSIGNMENT: Final = b"\0\1\0\0\0\1\0\6sg-one\0\0\0\1\0\0\0\0\xff\xff\xff\xff"


def _join(group: str, member_id: str = "", **fields: Any) -> JoinGroupRequest:
    protocols = [
        JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION),
        JoinGroupRequestProtocol(name="roundrobin", metadata=SUBSCRIPTION),
    ]
    values = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "protocol_type": "consumer"}
    return JoinGroupRequest(**{"group_id": group, "member_id": member_id, "protocols": protocols, **values, **fields})


def _sync(group: str, generation: int, member_id: str, **fields: Any) -> SyncGroupRequest:
    assignments = [SyncGroupRequestAssignment(member_id=member_id, assignment=ASSIGNMENT)]
    values = {"assignments": assignments, "protocol_type": "consumer", "protocol_name": "range"}
    return SyncGroupRequest(
        **{"group_id": group, "generation_id": generation, "member_id": member_id, **values, **fields}
    )


def _joined(wire: Wire, group: str, version: int = 9, **fields: Any) -> Any:
    """Join, again with the member id where one is handed out first; the answer."""
    first = wire.call(_join(group, **fields), version)
    if first.error_code == 79:
        return wire.call(_join(group, first.member_id, **fields), version)
    return first


def _leave(wire: Wire, group: str, member_id: str, version: int = 4, **fields: Any) -> None:
    members = [MemberIdentity(member_id=member_id, **fields)]
    wire.call(LeaveGroupRequest(group_id=group, member_id=member_id, members=members), version)


def _join_group(wire: Wire) -> None:
    wire.topic("sg-one")
    for version in versions(JoinGroupRequest):
        group = f"sg-join-{version}"
        joined = _joined(wire, group, version)
        wire.call(_join(group, joined.member_id), version)
        wire.call(_join(group, "nobody"), version)
        wire.call(_join(group, joined.member_id, protocol_type="connect"), version)
        other = [JoinGroupRequestProtocol(name="other", metadata=b"")]
        wire.call(_join(group, joined.member_id, protocols=other), version)
        wire.call(_join("", ""), version)
        wire.call(_join(f"{group}-quick", session_timeout_ms=1), version)
        wire.call(_join(f"{group}-slow", session_timeout_ms=10_000_000), version)
        wire.call(_join(f"{group}-bare", protocols=[]), version)
        wire.call(_join(f"{group}-typeless", protocol_type=""), version)
        _leave(wire, group, joined.member_id)
        if version >= 5:
            _static_join(wire, group, version)


def _static_join(wire: Wire, group: str, version: int) -> None:
    name = f"{group}-static"
    first = wire.call(_join(name, group_instance_id="one"), version)
    wire.call(_sync(name, first.generation_id, first.member_id, group_instance_id="one"), 5)
    again = wire.call(_join(name, group_instance_id="one"), version)
    wire.call(_join(name, first.member_id, group_instance_id="one"), version)
    wire.call(_join(name, "nobody", group_instance_id="other"), version)
    wire.call(_sync(name, again.generation_id, first.member_id, group_instance_id="one"), 5)
    wire.call(_sync(name, again.generation_id, again.member_id, group_instance_id="one"), 5)
    heartbeat = HeartbeatRequest(
        group_id=name, generation_id=again.generation_id, member_id=first.member_id, group_instance_id="one"
    )
    wire.call(heartbeat, 4)
    _leave(wire, name, "", group_instance_id="one")


def _sync_group(wire: Wire) -> None:
    wire.topic("sg-one")
    for version in versions(SyncGroupRequest):
        group = f"sg-sync-{version}"
        joined = _joined(wire, group)
        member, generation = joined.member_id, joined.generation_id
        for bad in (
            _sync(group, generation + 1, member),
            _sync(group, generation, "nobody"),
            _sync("sg-nobody", generation, member),
            _sync("", generation, member),
            _sync(group, generation, member, protocol_type="connect"),
            _sync(group, generation, member, protocol_name="other"),
            _sync(group, generation, member, group_instance_id="unknown"),
        ):
            wire.call(bad, version)
        wire.call(_sync(group, generation, member), version)
        wire.call(_sync(group, generation, member, assignments=[]), version)
        _leave(wire, group, member)


def _heartbeat(wire: Wire) -> None:
    wire.topic("sg-one")
    for version in versions(HeartbeatRequest):
        group = f"sg-heartbeat-{version}"
        joined = _joined(wire, group)
        member, generation = joined.member_id, joined.generation_id
        good = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)
        wire.call(good, version)
        wire.call(_sync(group, generation, member), 5)
        wire.call(good, version)
        for bad in (
            HeartbeatRequest(group_id=group, generation_id=generation + 1, member_id=member),
            HeartbeatRequest(group_id=group, generation_id=generation, member_id="nobody"),
            HeartbeatRequest(group_id=group, generation_id=generation, member_id=""),
            HeartbeatRequest(group_id="sg-nobody", generation_id=generation, member_id=member),
            HeartbeatRequest(group_id="", generation_id=generation, member_id=member),
        ):
            wire.call(bad, version)
        _leave(wire, group, member)


def _leave_group(wire: Wire) -> None:
    wire.topic("sg-one")
    for version in versions(LeaveGroupRequest):
        group = f"sg-leave-{version}"
        joined = _joined(wire, group)
        _leave(wire, group, "nobody", version)
        _leave(wire, group, "", version)
        _leave(wire, "sg-nobody", joined.member_id, version)
        _leave(wire, "", joined.member_id, version)
        _leave(wire, group, joined.member_id, version)
        _leave(wire, group, joined.member_id, version)
        if version >= 3:
            static = wire.call(_join(group, group_instance_id="one"), 9)
            members = [
                MemberIdentity(member_id="", group_instance_id="two"),
                MemberIdentity(member_id="wrong", group_instance_id="one"),
                MemberIdentity(member_id=static.member_id, group_instance_id="one"),
                MemberIdentity(member_id="nobody"),
            ]
            wire.call(LeaveGroupRequest(group_id=group, members=members), version)


def _describe_list_delete(wire: Wire) -> None:
    wire.topic("sg-one")
    joined = _joined(wire, "sg-live", group_instance_id="one")
    wire.call(DescribeGroupsRequest(groups=["sg-live"]), 5)
    wire.call(_sync("sg-live", joined.generation_id, joined.member_id), 5)
    empty = _joined(wire, "sg-empty")
    _leave(wire, "sg-empty", empty.member_id)
    for version in versions(DescribeGroupsRequest):
        requests = ["sg-live", "sg-empty", "sg-nobody", ""]
        wire.call(DescribeGroupsRequest(groups=requests, include_authorized_operations=version >= 3), version)
        wire.call(DescribeGroupsRequest(groups=[]), version)
    for version in versions(ListGroupsRequest):
        wire.call(ListGroupsRequest(), version)
        for states in (["Stable"], ["Empty", "Dead"], ["stable"], ["nonsense"]):
            wire.call(ListGroupsRequest(states_filter=states), version)
        for types in (["classic"], ["Consumer"], ["nonsense"]):
            wire.call(ListGroupsRequest(types_filter=types), version)
    for version in versions(DeleteGroupsRequest):
        again = _joined(wire, "sg-empty")
        _leave(wire, "sg-empty", again.member_id)
        requests = ["sg-live", "sg-empty", "sg-nobody", "", "sg-empty"]
        wire.call(DeleteGroupsRequest(groups_names=requests), version)


SWEEPS: Final[dict[str, Sweep]] = {
    "join-group": _join_group,
    "sync-group": _sync_group,
    "heartbeat": _heartbeat,
    "leave-group": _leave_group,
    "describe-list-delete-groups": _describe_list_delete,
}

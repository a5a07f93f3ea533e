"""Clients of the classic protocol in a history: they join, fetch or give assignments, rejoin, leave, and err."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import MemberId, TopicName, TopicPartition
from oncelog.core.groups.classic.group import ClassicGroup
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.model import (
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveReply,
    LeavingMember,
    Protocol,
    SyncReply,
    SyncRequest,
)
from oncelog.core.groups.modern.group import Refused
from oncelog.records.internal.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from tests.conformance.groups.comparison import Different, assigned
from tests.conformance.groups.core_group import CLIENT, GROUP, HOST

if TYPE_CHECKING:
    from tests.conformance.groups.histories import History

INSTANCES = {"c2": "i0", "c3": "i1"}
OFFERS = (("range",), ("range",), ("range",), ("range", "sticky"), ("sticky",))
LOST = ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID", "GROUP_MAX_SIZE_REACHED")
SESSION_MS = 45_000
"""That of the new protocol, too: after a load Apache Kafka gives it to classic members."""


@dataclass(slots=True)
class ClassicClient:
    """A classic member as its client knows it."""

    name: str
    member_id: str = ""
    generation: int = -1
    protocol: str | None = None
    is_leader: bool = False
    must_join: bool = True
    must_sync: bool = False
    waits: bool = False
    topics: list[str] = field(default_factory=list)
    owned: list[TopicPartition] = field(default_factory=list)

    @property
    def instance(self) -> str | None:
        return INSTANCES.get(self.name)


class ClassicClients:
    """The classic clients of a history."""

    def __init__(self, entropy: random.Random, history: History) -> None:
        self._entropy = entropy
        self._history = history
        self._clients = [ClassicClient(f"c{number}") for number in range(4)]
        self._tokens: dict[int, ClassicClient] = {}

    def step(self) -> None:
        """One request of one client, if any does not wait for an answer."""
        entropy = self._entropy
        idle = [client for client in self._clients if not client.waits]
        if not idle:
            return
        client = entropy.choice(idle)
        chance = entropy.random()
        if not client.member_id or (client.must_join and chance < 0.8):
            self._join(client)
        elif client.must_sync and chance < 0.8:
            self._sync(client)
        elif chance < 0.07:
            self._leave(client)
        elif chance < 0.17:
            self._join(client)
        elif chance < 0.27:
            self._sync(client)
        else:
            self._heartbeat(client)

    def receive(self, ours: list[tuple[int, object]], theirs: list[dict[str, Any]]) -> None:
        """Give clients their replies. Raises Different unless the replies are equal."""
        our_replies = {token: _comparable_reply(reply) for token, reply in ours}
        their_replies = {reply["token"]: _comparable_answer(reply) for reply in theirs}
        if our_replies != their_replies:
            raise Different(f"ours: {our_replies}\ntheirs: {their_replies}")
        for reply in theirs:
            client = self._tokens.pop(reply["token"])
            client.waits = any(other is client for other in self._tokens.values())
            self._note(client, reply)

    def forget_parked(self) -> None:
        """Requests that were parked are lost with the coordinator."""
        for client in self._tokens.values():
            client.waits = False
        self._tokens.clear()

    def _note(self, client: ClassicClient, reply: dict[str, Any]) -> None:
        error = reply["error"]
        self._history.events[f"{'sync' if 'assignment' in reply else 'join'} {error}"] += 1
        if error in LOST:
            client.member_id, client.must_join, client.must_sync, client.owned = "", True, False, []
        elif error == "MEMBER_ID_REQUIRED":
            client.member_id = reply["member"]
        elif error != "NONE":
            client.must_join, client.must_sync = True, False
        elif "assignment" not in reply:
            client.member_id, client.generation, client.protocol = (
                reply["member"],
                reply["generation"],
                reply["protocol"],
            )
            client.must_join, client.must_sync = False, True
            client.is_leader = reply["leader"] == reply["member"]
            self._history.ours.lead(reply["leader"])
        else:
            client.must_sync = False
            client.owned = _partitions(reply["assignment"])

    def _join(self, client: ClassicClient) -> None:
        entropy, history = self._entropy, self._history
        if not client.topics or entropy.random() < 0.2:
            client.topics = history.some_topics()
        member_id = client.member_id
        group = history.ours.group
        if isinstance(group, ClassicGroup) and group.static_members.get(client.instance or "") in group.pending_syncs:
            # In ours the successor inherits the SyncGroup that is awaited.
            return
        is_empty = isinstance(group, ConsumerGroup) and not group.members
        if is_empty or (client.instance and entropy.random() < 0.3):
            # Apache Kafka forgets an empty consumer group when a member id joins, without a record.
            member_id = ""
        protocols = self._offers(client)
        operation: dict[str, Any] = {
            "member": member_id,
            "instance": client.instance,
            "session": SESSION_MS,
            "timeout": entropy.choice([3000, 5000]),
            "type": "consumer" if entropy.random() < 0.98 else "connect",
            "protocols": [[protocol.name, protocol.metadata.hex()] for protocol in protocols],
            "known": entropy.random() < 0.7,
        }
        token = self._token(client)
        theirs = history.ask(op="join", token=token, **operation)
        told = [reply["member"] for reply in theirs["released"] if reply["token"] == token]
        told += re.findall(r"^Member (\S+)'s protocols", theirs.get("message", ""))
        request = JoinRequest(
            GROUP,
            MemberId(member_id),
            MemberId(next((name for name in told if name), "") or theirs.get("created") or "new"),
            client.instance,
            CLIENT,
            HOST,
            SESSION_MS,
            operation["timeout"],
            operation["type"],
            protocols,
            requires_known_member_id=operation["known"],
            supports_skipping_assignment=operation["known"],
        )
        try:
            ours = history.ours.join(request, token)
        except Refused as refused:
            self._refused(client, token, operation, refused, theirs)
            return
        history.compare({"op": "join", **operation}, ours, theirs)

    def _offers(self, client: ClassicClient) -> tuple[Protocol, ...]:
        """The client's protocols, with its subscription."""
        entropy = self._entropy
        owned = [partition for partition in client.owned if partition.topic in client.topics]
        subscription = Subscription(
            tuple(TopicName(name) for name in client.topics),
            owned_partitions=tuple(owned if entropy.random() < 0.5 else client.owned),
            generation=client.generation,
            rack=entropy.choice([None, "r1"]),
        )
        metadata = encode_subscription(subscription, entropy.randint(0, 3))
        return tuple(Protocol(name, metadata) for name in entropy.choice(OFFERS))

    def _sync(self, client: ClassicClient) -> None:
        entropy, history = self._entropy, self._history
        group = history.ours.group
        assignments: dict[str, bytes] = {}
        if isinstance(group, ClassicGroup) and group.members and client.is_leader:
            assignments = self._assignments(group)
        operation: dict[str, Any] = {
            "member": client.member_id,
            "instance": client.instance,
            "generation": client.generation + entropy.choices([0, 1], [95, 5])[0],
            "type": entropy.choices(["consumer", None, "connect"], [60, 38, 2])[0],
            "protocol": entropy.choices([client.protocol, None, "other"], [60, 38, 2])[0],
        }
        token = self._token(client)
        hexadecimal = {member_id: part.hex() for member_id, part in assignments.items()}
        theirs = history.ask(op="sync", token=token, assignments=hexadecimal, **operation)
        request = SyncRequest(
            GROUP,
            MemberId(client.member_id),
            operation["generation"],
            client.instance,
            operation["type"],
            operation["protocol"],
            [(MemberId(member_id), part) for member_id, part in assignments.items()],
        )
        try:
            ours = history.ours.sync(request, token)
        except Refused as refused:
            self._refused(client, token, operation, refused, theirs)
            return
        if "error" in theirs:
            # The judge throws; our classic machine and a due rebalance answer.
            theirs["released"].append({"token": token, "error": theirs["error"], "protocol": None, "assignment": ""})
        history.compare({"op": "sync", **operation}, ours, theirs)

    def _assignments(self, group: ClassicGroup) -> dict[str, bytes]:
        """An assignment of all partitions, which now and then only a custom assignor could make."""
        entropy = self._entropy
        shares: dict[str, list[TopicPartition]] = {member_id: [] for member_id in group.members}
        for name, (_, count) in self._history.topics.items():
            for partition in range(count):
                shares[entropy.choice(list(shares))].append(TopicPartition(TopicName(name), partition))
        user_data = b"state" if entropy.random() < 0.05 else None
        version = entropy.randint(0, 3)
        encoded = {
            name: encode_assignment(Assignment(tuple(share), user_data), version) for name, share in shares.items()
        }
        if entropy.random() < 0.03:
            encoded[next(iter(encoded))] = b"\0"
        return encoded

    def _heartbeat(self, client: ClassicClient) -> None:
        history = self._history
        operation = {
            "member": client.member_id,
            "instance": client.instance if self._entropy.random() < 0.97 else "unknown",
            "generation": client.generation + self._entropy.choices([0, 1], [95, 5])[0],
        }
        theirs = history.ask(op="classic_heartbeat", **operation)
        request = HeartbeatRequest(GROUP, MemberId(client.member_id), operation["generation"], operation["instance"])
        try:
            ours = history.ours.classic_heartbeat(request)
        except Refused as refused:
            history.refused(operation, refused, theirs)
            code = refused.code
        else:
            assert isinstance(ours.answer, ErrorCode)
            code = ours.answer
            if code.name != theirs.get("code", theirs.get("error")):
                raise Different(f"{operation}\nours: {code.name}\ntheirs: {theirs}")
            history.compare({"op": "heartbeat", **operation}, ours, theirs)
        history.events[f"heartbeat {code.name}"] += 1
        if code.name in LOST:
            client.member_id = ""
        client.must_join |= code is not ErrorCode.NONE

    def _leave(self, client: ClassicClient) -> None:
        entropy, history = self._entropy, self._history
        leaving = [LeavingMember(MemberId(client.member_id), client.instance)]
        if client.instance and entropy.random() < 0.3:
            leaving = [LeavingMember(MemberId(""), client.instance)]
        group = history.ours.group
        while group is not None and group.members and entropy.random() < 0.5:
            # An administrator removes others, too.
            member_id = entropy.choice(sorted(group.members))
            leaving.append(LeavingMember(member_id, None))
        parked = _parked_syncs(group) if isinstance(group, ClassicGroup) else set()
        operation = {"members": [list(identity) for identity in leaving]}
        theirs = history.ask(op="leave", **operation)
        if group is None:
            assert theirs["error"] == "UNKNOWN_MEMBER_ID", theirs
            return
        ours = history.ours.leave(leaving)
        assert isinstance(ours.answer, LeaveReply)
        codes = [code.name for _, code in ours.answer.members]
        if codes != theirs.get("codes"):
            raise Different(f"{operation}\nours: {codes}\ntheirs: {theirs}")
        if isinstance(group, ClassicGroup) and not parked <= group.members.keys():
            history.leave_out("the parked SyncGroup of a member that leaves")
        history.compare({"op": "leave", **operation}, ours, theirs)
        client.member_id, client.must_join, client.must_sync, client.owned = "", True, False, []

    def _token(self, client: ClassicClient) -> int:
        token = max(self._tokens, default=self._entropy.randint(1, 10**6)) + 1
        self._tokens[token] = client
        client.waits = True
        return token

    def _refused(
        self, client: ClassicClient, token: int, operation: dict[str, Any], refused: Refused, theirs: dict[str, Any]
    ) -> None:
        del self._tokens[token]
        client.waits = any(other is client for other in self._tokens.values())
        self._history.refused(operation, refused, theirs)
        if refused.code.name in LOST:
            client.member_id = ""
        client.must_join, client.must_sync = True, False


def _parked_syncs(group: ClassicGroup) -> set[MemberId]:
    """The members whose SyncGroup waits for the leader's."""
    return {member.member_id for member in group.members.values() if member.sync_token is not None}


def _comparable_reply(reply: object) -> object:
    """Our reply without the leader, which depends on the order of a hash map."""
    match reply:
        case JoinReply(ErrorCode.NONE):
            return "NONE", reply.member_id, reply.generation, reply.protocol_name
        case JoinReply(ErrorCode.MEMBER_ID_REQUIRED):
            return "MEMBER_ID_REQUIRED", reply.member_id
        case SyncReply(ErrorCode.NONE):
            return "NONE", reply.protocol_name, assigned(reply.assignment)
        case JoinReply() | SyncReply():
            return reply.error_code.name
        case _:
            raise AssertionError(reply)


def _comparable_answer(reply: dict[str, Any]) -> object:
    error = reply["error"]
    if error == "MEMBER_ID_REQUIRED":
        return error, reply["member"]
    if error != "NONE":
        return error
    if "assignment" in reply:
        return error, reply["protocol"], assigned(bytes.fromhex(reply["assignment"]))
    return error, reply["member"], reply["generation"], reply["protocol"]


def _partitions(hexadecimal: str) -> list[TopicPartition]:
    data = bytes.fromhex(hexadecimal)
    return list(decode_assignment(data).partitions) if len(data) > 1 else []

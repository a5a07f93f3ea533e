"""The flight recorder keeps what came from other brokers, and a digest of what was sent to them."""

from __future__ import annotations

from oncelog.base.security import SecurityProtocol
from oncelog.base.tree import TreeNode
from oncelog.node.kernel.events import (
    BrokerConnected,
    BrokerDisconnected,
    BrokerSent,
    ConnectionOpened,
    ConnectToBroker,
    DisconnectFromBroker,
    Effect,
    Event,
    NodesRead,
    ReadTree,
    SendToBroker,
)
from oncelog.node.observation.flight_recorder import FlightRecorder, RecordedNode, digest_of, read_recording


class Node:
    """A node that answers every event with the same effects."""

    connections = liveness = None

    def __init__(self, effects: list[Effect]) -> None:
        self.effects = effects

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """See ``Node.handle``; the buffer of an event is used up."""
        if isinstance(event, BrokerSent):
            memoryview(event.data)[:] = bytes(len(event.data))
        return self.effects

    def holds_secrets(self, event: Event) -> bool:
        """Nobody logs in."""
        return False

    def next_deadline_ms(self) -> int | None:
        """Never."""
        return None


def test_events_of_links_are_read_back_as_they_came() -> None:
    lines: list[bytes] = []
    recorder = FlightRecorder(lines.append, 100_000)
    recorder.begin({}, {"PLAINTEXT": ("h", 1)}, 1, [], [])
    node = RecordedNode(Node([DisconnectFromBroker(3)]), recorder)
    node.handle(BrokerConnected(3), 2)
    node.handle(BrokerSent(3, memoryview(bytearray(b"\0answer"))), 3)
    node.handle(BrokerDisconnected(3, refused=True), 4)
    moments = read_recording(lines).moments
    assert [moment.event for moment in moments] == [
        BrokerConnected(3),
        BrokerSent(3, b"\0answer"),
        BrokerDisconnected(3, refused=True),
    ]
    assert {moment.digest for moment in moments} == {digest_of([DisconnectFromBroker(3)])}


def test_reads_of_the_trees_position_are_read_back_in_order() -> None:
    lines: list[bytes] = []
    recorder = FlightRecorder(lines.append, 100_000)
    recorder.begin({}, {"PLAINTEXT": ("h", 1)}, 1, [], [])
    positions = iter([7, None, 8])
    read = recorder.position(lambda: next(positions))
    assert [read(), read(), read()] == [7, None, 8]
    assert read_recording(lines).positions == [7, None, 8]


def test_nodes_of_the_tree_are_read_back_as_they_came() -> None:
    lines: list[bytes] = []
    recorder = FlightRecorder(lines.append, 100_000)
    recorder.begin({}, {"PLAINTEXT": ("h", 1)}, 1, [], [])
    tree = ReadTree(1, ["/consumers/g/offsets/t/0"])
    node = RecordedNode(Node([tree]), recorder)
    read = [NodesRead(1, [TreeNode("/consumers/g/offsets/t/0", b"50", 3)]), NodesRead(2, None)]
    for event in read:
        node.handle(event, 2)
    moments = read_recording(lines).moments
    assert [moment.event for moment in moments] == read
    assert {moment.digest for moment in moments} == {digest_of([tree])}


def test_a_digest_tells_connections_and_bytes_apart() -> None:
    effects: list[Effect] = [
        ConnectToBroker(1, "h", 1),
        ConnectToBroker(2, "h", 1),
        DisconnectFromBroker(1),
        SendToBroker(1, [b"a"]),
        SendToBroker(1, [b"b"]),
        SendToBroker(2, [b"a"]),
    ]
    assert len({digest_of([effect]) for effect in effects}) == len(effects)


def test_a_connection_is_read_back_with_its_listener() -> None:
    """Its security protocol was something that JSON has no word for."""
    lines: list[bytes] = []
    recorder = FlightRecorder(lines.append, 100_000)
    recorder.begin({}, {"PLAINTEXT": ("h", 1), "INSIDE": ("h", 2)}, 1, [], [])
    opened = ConnectionOpened(7, "/127.0.0.1", ("h", 2), "User:alice", "INSIDE", SecurityProtocol.SASL_SSL)
    RecordedNode(Node([]), recorder).handle(opened, 5)
    recording = read_recording(lines)
    assert [moment.event for moment in recording.moments] == [opened]
    assert recording.bound == {"PLAINTEXT": ("h", 1), "INSIDE": ("h", 2)}

"""The requests between a share partition's leader and the coordinator of its state (KIP-932), asked directly."""

from __future__ import annotations

from typing import Any, Final

from oncelog.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.write_share_group_state import StateBatch
from tests.peers.clients.sweep.wire import NOWHERE, Sweep, Wire

TOPIC: Final = "ss-one"
GROUP: Final = "ss-group"
AVAILABLE, ACKNOWLEDGED, ARCHIVED, ARCHIVING = 0, 2, 4, 5


class States:
    """The state of one share partition after another."""

    def __init__(self, wire: Wire, group: str, topic_id: bytes, partition: int = 0) -> None:
        self._wire, self._group, self._topic_id, self._partition = wire, group, topic_id, partition

    def initialize(self, state_epoch: int, start_offset: int) -> None:
        data = {"state_epoch": state_epoch, "start_offset": start_offset}
        self._call(initialize_share_group_state, "InitializeShareGroupState", "InitializeStateData", data)

    def read(self, leader_epoch: int) -> None:
        self._call(read_share_group_state, "ReadShareGroupState", "ReadStateData", {"leader_epoch": leader_epoch})

    def summary(self, leader_epoch: int) -> None:
        module = read_share_group_state_summary
        self._call(module, "ReadShareGroupStateSummary", "ReadStateSummaryData", {"leader_epoch": leader_epoch})

    def write(
        self, state_epoch: int, leader_epoch: int, start_offset: int, *batches: tuple[int, int, int, int]
    ) -> None:
        data = {
            "state_epoch": state_epoch,
            "leader_epoch": leader_epoch,
            "start_offset": start_offset,
            "delivery_complete_count": 1,
            "state_batches": [
                StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in batches
            ],
        }
        self._call(write_share_group_state, "WriteShareGroupState", "WriteStateData", data)

    def delete(self) -> None:
        self._call(delete_share_group_state, "DeleteShareGroupState", "DeleteStateData", {})

    def all(self) -> None:
        """Every request once."""
        self.read(0)
        self.summary(0)
        self.initialize(1, 0)
        self.write(1, 0, 0, (0, 4, AVAILABLE, 1))
        self.delete()

    def _call(self, module: Any, name: str, data: str, fields: dict[str, Any]) -> None:
        kind = getattr(module, f"{name}Request")
        partition = module.PartitionData(partition=self._partition, **fields)
        topic = getattr(module, data)(topic_id=self._topic_id, partitions=[partition])
        for version in range(kind.MIN_VERSION, kind.MAX_VERSION + 1):
            self._wire.call(kind(group_id=self._group, topics=[topic]), version)


def _states(wire: Wire) -> None:
    topic_id = wire.topic(TOPIC, 2)
    for group, wanted, partition in (
        ("", topic_id, 0),
        (GROUP, NOWHERE, 0),
        (GROUP, bytes(16), 0),
        (GROUP, topic_id, 7),
        (GROUP, topic_id, -1),
    ):
        States(wire, group, wanted, partition).all()
    states = States(wire, GROUP, topic_id)
    states.read(0)
    states.summary(0)
    states.delete()
    states.write(1, 0, 0, (0, 4, AVAILABLE, 1))
    states.initialize(-1, 0)
    states.initialize(1, -1)
    states.initialize(1, 3)
    states.initialize(1, 3)
    states.initialize(0, 0)
    states.summary(0)
    states.read(-1)
    states.read(2)
    states.read(1)
    states.write(1, 2, 3, (3, 9, ACKNOWLEDGED, 1), (10, 12, AVAILABLE, 2))
    states.write(1, 1, 3, (13, 13, AVAILABLE, 1))
    states.write(2, 2, 3, (13, 13, AVAILABLE, 1))
    states.write(0, 2, 3, (13, 13, AVAILABLE, 1))
    states.read(2)
    states.write(1, 2, 10, (11, 11, ARCHIVED, 3))
    states.write(1, 2, 10)
    states.write(1, 2, -1, (12, 20, AVAILABLE, 1))
    states.write(1, 3, 10, (20, 25, 7, 1), (26, 27, ARCHIVING, 5))
    states.read(3)
    states.summary(3)
    states.summary(9)
    states.initialize(5, 100)
    states.read(3)
    states.delete()
    states.read(3)
    states.delete()


def _coordinators(wire: Wire) -> None:
    """FindCoordinator for share partitions, and keys that are none."""
    topic_id = wire.topic(TOPIC)
    for key in (
        "",
        "x",
        "a:b",
        "a:b:0",
        f"{GROUP}:AAAAAAAAAAAAAAAAAAAAAA:0",
        "g:AAAAAAAAAAAAAAAAAAAAAA:x",
        "::",
        "g:AAAAAAAAAAAAAAAAAAAAAA:-1",
        ":AAAAAAAAAAAAAAAAAAAAAA:0",
        "a:g:AAAAAAAAAAAAAAAAAAAAAA:0",
    ):
        for version in (4, 5, 6):
            wire.call(FindCoordinatorRequest(key_type=2, coordinator_keys=[key]), version)
    wire.call(FindCoordinatorRequest(key_type=2, key=GROUP), 3)
    States(wire, GROUP, topic_id).summary(0)


SWEEPS: Final[dict[str, Sweep]] = {"share-states": _states, "share-coordinators": _coordinators}

"""The golden corpus: what was recorded, how the broker stood that it was recorded against, and where it is kept."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Final

from tests.waiting import HANG_S, wait_until

DATA: Final = Path(__file__).parent / "data"
"""Recorded from Apache Kafka 4.4.0, the reference."""
DATA_4_3: Final = Path(__file__).parent / "data-4.3.1"
"""Recorded from 4.3.1, whose clients and brokers are in use."""
BROKER_PROPERTIES: Final = {
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "node.id": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
"""Both brokers are configured so; the rest are Apache Kafka's defaults."""

_INIT_PRODUCER_ID_V0: Final = struct.pack(">hhihhi", 22, 0, 1, -1, -1, 60_000)
_FIND_COORDINATOR_V0: Final = struct.pack(">hhih", 10, 0, 1, -1) + b"\0\7warm-up"
_LIST_GROUPS_V0: Final = struct.pack(">hhih", 16, 0, 1, -1)
_FIND_TRANSACTION_COORDINATOR_V1: Final = struct.pack(">hhih", 10, 1, 1, -1) + b"\0\7warm-up\1"
_INIT_TRANSACTIONS_V0: Final = struct.pack(">hhih", 22, 0, 1, -1) + b"\0\7warm-up" + struct.pack(">i", 60_000)
_FIND_SHARE_COORDINATOR_V6: Final = struct.pack(">hhih", 10, 6, 1, -1) + b"\0\2\2\x21warm-up:AAAAAAAAAAAAAAAAAAAAAA:0\0"
_SHARE_COORDINATOR: Final = 1 + 4 + 1 + 33
"""The position of its node id, which is -1 for an error: behind tags, throttle time, and one coordinator's key."""
_TRANSACTIONS: Final = "transactions-"
_SHARES: Final = "share-"
_SHARE_PROPERTIES: Final = {"share.coordinator.state.topic.num.partitions": "1"}
"""One partition is made and loaded as fast as a warm-up needs it."""
_ASKS_UNSTABLE_VERSIONS: Final = frozenset({"init-producer-id", "transactions-init"})
"""InitProducerId 6 is not advertised by Apache Kafka unless it is told to."""


def _call(address: tuple[str, int], request: bytes) -> bytes:
    with socket.create_connection(address, timeout=HANG_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            more = connection.recv(4096)
            if not more:
                raise RuntimeError("the broker closed the connection")
            answer += more
    return answer[8:]


def properties_of(scenario: str) -> dict[str, str]:
    """How the broker of a scenario is configured."""
    unstable = {"unstable.api.versions.enable": "true"} if scenario in _ASKS_UNSTABLE_VERSIONS else {}
    return BROKER_PROPERTIES | (_SHARE_PROPERTIES if scenario.startswith(_SHARES) else {}) | unstable


def scenario_of(recording: Path) -> str:
    """The scenario's name: recordings are ``client.scenario.xz``."""
    return recording.stem.partition(".")[2]


def warm_up(address: tuple[str, int], scenario: str = "") -> None:
    """Wait until the broker has producer ids to give and its offsets topic exists and is loaded.

    Without it a recording would begin with however many COORDINATOR_NOT_AVAILABLE the machine was slow enough for.
    A scenario whose name begins with ``transactions-`` finds the coordinators of transactions ready, too, and one whose
    name begins with ``share-`` the coordinators of share groups' state.
    """
    questions = [(_INIT_PRODUCER_ID_V0, 4), (_FIND_COORDINATOR_V0, 0), (_LIST_GROUPS_V0, 0)]
    if scenario.startswith(_TRANSACTIONS):
        questions += [(_FIND_TRANSACTION_COORDINATOR_V1, 4), (_INIT_TRANSACTIONS_V0, 4)]
    if scenario.startswith(_SHARES):
        questions += [(_FIND_SHARE_COORDINATOR_V6, _SHARE_COORDINATOR)]
    for request, error_position in questions:
        place = slice(error_position, error_position + 2)
        wait_until(lambda ask=request, code=place: not any(_call(address, ask)[code]), "a broker that is ready")

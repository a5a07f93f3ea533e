"""L1 to L5: within a bound after the last fault, everything makes progress again.

:class:`EndState` is the state over the wire at the end of that bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.base.ids import TopicPartition


class Offsets(NamedTuple):
    """Ends of one partition from ListOffsets at both isolation levels, or from Fetch."""

    high_watermark: int
    last_stable_offset: int


class TransactionSeen(NamedTuple):
    """A transaction in ListTransactions, ``state`` in Kafka's words. ``two_phase``: it waits for an external
    decision.
    """

    transactional_id: str
    state: str
    two_phase: bool = False
    partitions: frozenset[TopicPartition] = frozenset()


class WaitingRequest(NamedTuple):
    connection: str
    request: str
    requested_at_ms: int


@dataclass(frozen=True)
class EndState:
    """The cluster's state ``bound_ms`` after network, disks and brokers were repaired at ``healed_at_ms``."""

    healed_at_ms: int
    bound_ms: int
    # Client → time of its last progress, or None; finished clients are left out.
    progress: Mapping[str, int | None] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, Offsets] = field(default_factory=dict)
    transactions: Sequence[TransactionSeen] = ()
    # Group → its state, in Kafka's words.
    groups: Mapping[str, str] = field(default_factory=dict)
    waiting: Sequence[WaitingRequest] = ()


AT_REST: Final = frozenset({"Stable", "Empty", "Dead"})
WITHOUT_MEMBERS: Final = frozenset({"Empty", "Dead"})
_DECIDED: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


def stuck_clients(end_state: EndState) -> Iterator[str]:
    for client, at_ms in sorted(end_state.progress.items()):
        if at_ms is None or at_ms <= end_state.healed_at_ms:
            yield f"{client} has done nothing since {at_ms}, {end_state.bound_ms} ms after the healing"


def open_transactions(end_state: EndState) -> Iterator[str]:
    """A transaction has not ended, and is not left open on purpose in two phases."""
    for transaction in end_state.transactions:
        held = transaction.two_phase and transaction.state == "Ongoing"
        if transaction.state not in _DECIDED and not held:
            yield f"{transaction.transactional_id} is {transaction.state}"


def held_back(end_state: EndState) -> Iterator[str]:
    """The last stable offset is below the high watermark without a two-phase transaction."""
    excused: set[TopicPartition] = set()
    for transaction in end_state.transactions:
        if transaction.two_phase:
            excused |= transaction.partitions
    for partition, (high_watermark, last_stable) in sorted(end_state.partitions.items()):
        if last_stable != high_watermark and partition not in excused:
            yield f"{partition}: last stable offset {last_stable}, high watermark {high_watermark}"


def unstable_groups(end_state: EndState) -> Iterator[str]:
    for group, state in sorted(end_state.groups.items()):
        if state not in AT_REST:
            yield f"{group} is {state}"


def unanswered_requests(end_state: EndState) -> Iterator[str]:
    """A request from before the end of the faults, on an open connection, has no response."""
    for connection, request, requested_at_ms in end_state.waiting:
        yield f"{request} of {connection}, asked at {requested_at_ms}"


LIVENESS: Final[Mapping[str, Callable[[EndState], Iterator[str]]]] = {
    "L1 client without progress": stuck_clients,
    "L2 transaction not at an end": open_transactions,
    "L3 last stable offset held back": held_back,
    "L4 group not stable": unstable_groups,
    "L5 request without an answer": unanswered_requests,
}


def check_liveness(end_state: EndState) -> dict[str, list[str]]:
    instances_by_name = {name: list(rule(end_state)) for name, rule in LIVENESS.items()}
    return {name: instances for name, instances in instances_by_name.items() if instances}

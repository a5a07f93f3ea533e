"""After the faults have stopped: within a bound everything moves again. The rule of safety is elsewhere.

The :class:`Aftermath` is what was asked over the wire once the bound had passed: offsets of every partition, states of
transactions and groups, when each client last got something done, and which requests have no answer yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.base.ids import TopicPartition


class Offsets(NamedTuple):
    """Ends of one partition by ListOffsets at both isolation levels, or by Fetch."""

    high_watermark: int
    last_stable_offset: int


class TransactionSeen(NamedTuple):
    """A transaction by ListTransactions; ``state`` is Kafka's word. ``two_phase``: it waits for somebody to end it."""

    transactional_id: str
    state: str
    two_phase: bool = False
    partitions: frozenset[TopicPartition] = frozenset()


class WaitingRequest(NamedTuple):
    """A request on an open connection that has no answer."""

    connection: str
    request: str
    asked_at_ms: int


@dataclass(frozen=True)
class EndState:
    """The state of the cluster ``bound_ms`` after network, disk and broker were healed at ``healed_at_ms``."""

    healed_at_ms: int
    bound_ms: int
    progress: Mapping[str, int | None] = field(default_factory=dict)
    """Client → when it last got something done; None: never. Clients that have finished are left out."""
    partitions: Mapping[TopicPartition, Offsets] = field(default_factory=dict)
    transactions: Sequence[TransactionSeen] = ()
    groups: Mapping[str, str] = field(default_factory=dict)
    """Group → its state, Kafka's word."""
    waiting: Sequence[WaitingRequest] = ()


AT_REST: Final = frozenset({"Stable", "Empty", "Dead"})
WITHOUT_MEMBERS: Final = frozenset({"Empty", "Dead"})
_DECIDED: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


def stuck_clients(end_state: EndState) -> Iterator[str]:
    for client, at_ms in sorted(end_state.progress.items()):
        if at_ms is None or at_ms <= end_state.healed_at_ms:
            yield f"{client} has done nothing since {at_ms}, {end_state.bound_ms} ms after the healing"


def open_transactions(end_state: EndState) -> Iterator[str]:
    """A transaction is not at an end, and it is not one in two phases that was left open on purpose."""
    for transaction in end_state.transactions:
        held = transaction.two_phase and transaction.state == "Ongoing"
        if transaction.state not in _DECIDED and not held:
            yield f"{transaction.transactional_id} is {transaction.state}"


def held_back(end_state: EndState) -> Iterator[str]:
    """The last stable offset is not the high watermark, and no transaction in two phases holds it."""
    excused: set[TopicPartition] = set()
    for transaction in end_state.transactions:
        if transaction.two_phase:
            excused |= transaction.partitions
    for partition, (high, stable) in sorted(end_state.partitions.items()):
        if stable != high and partition not in excused:
            yield f"{partition}: last stable offset {stable}, high watermark {high}"


def unstable_groups(end_state: EndState) -> Iterator[str]:
    for group, state in sorted(end_state.groups.items()):
        if state not in AT_REST:
            yield f"{group} is {state}"


def unanswered_requests(end_state: EndState) -> Iterator[str]:
    """A request on an open connection came before the healing ended its excuse, and was never answered."""
    for connection, request, asked_at_ms in end_state.waiting:
        yield f"{request} of {connection}, asked at {asked_at_ms}"


LIVENESS: Final[Mapping[str, Callable[[EndState], Iterator[str]]]] = {
    "L1 client without progress": stuck_clients,
    "L2 transaction not at an end": open_transactions,
    "L3 last stable offset held back": held_back,
    "L4 group not stable": unstable_groups,
    "L5 request without an answer": unanswered_requests,
}


def check_liveness(end_state: EndState) -> dict[str, list[str]]:
    """Rule (number and name) → its instances; empty when everything moves."""
    found = {name: list(look(end_state)) for name, look in LIVENESS.items()}
    return {name: instances for name, instances in found.items() if instances}

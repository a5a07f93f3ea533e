"""The parameters of a Fetch, whatever its version: whose it is, and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.ids import BrokerId
from oncelog.core.configs.keys import RACK_AWARE_SELECTOR

if TYPE_CHECKING:
    from oncelog.handlers.broker.context import Context
    from oncelog.wire.messages.fetch import FetchRequest

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
UNKNOWN: Final = -1
_FROM_FOLLOWERS_SINCE: Final = 11


class Replica(NamedTuple):
    """The follower that fetches, in the registration ``broker_epoch`` (−1: it does not say)."""

    broker_id: BrokerId
    broker_epoch: int


@dataclass(slots=True)
class FetchParams:
    """The parameters of one request."""

    min_bytes: int
    """Bytes that a waiting request waits for; ``max_bytes`` at most."""
    max_bytes: int
    """Bytes of the whole answer."""
    read_committed: bool
    replica: Replica | None = None
    """The follower that fetches, None for consumers."""
    replica_asks_anew: bool = False
    """A follower without a session: it is told of all open transactions, and not only of those that begin in what it
    reads."""
    reads_from_followers: bool = False
    """A consumer that knows of followers it can read from (KIP-392)."""
    rack_id: str = ""
    """The consumer's rack; empty: it reads where it asks."""
    racks: Mapping[BrokerId, str | None] | None = None
    """The racks of the brokers that live; None where no consumer is sent to its rack."""


def replica_of(request: FetchRequest) -> Replica | None:
    """The broker that asks, None for consumers."""
    state = request.replica_state
    if state is not None and state.replica_id >= 0:
        return Replica(BrokerId(state.replica_id), state.replica_epoch)
    return Replica(BrokerId(request.replica_id), UNKNOWN) if request.replica_id >= 0 else None


def params_of(request: FetchRequest, context: Context, replica: Replica | None) -> FetchParams:
    """The parameters of a request, within the limits of the broker and the quotas of its client."""
    max_bytes = _max_bytes(request, context, replica)
    is_consumer = replica is None
    racks = _racks(context) if request.rack_id and is_consumer else None
    return FetchParams(
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        read_committed=request.isolation_level == READ_COMMITTED and is_consumer,
        replica=replica,
        replica_asks_anew=request.session_epoch <= 0,
        reads_from_followers=is_consumer and context.version >= _FROM_FOLLOWERS_SINCE,
        rack_id=request.rack_id,
        racks=racks,
    )


def _max_bytes(request: FetchRequest, context: Context, replica: Replica | None) -> int:
    most: int = min(request.max_bytes, context.cluster.config.get("fetch.max.bytes"))
    quotas = context.cluster.quotas
    if quotas.enabled and replica is None:
        within = quotas.most_fetched(context)
        most = most if within is None else min(most, within)
    return most


def _racks(context: Context) -> Mapping[BrokerId, str | None] | None:
    if context.cluster.config.get("replica.selector.class") != RACK_AWARE_SELECTOR:
        return None
    lost = context.cluster.lost_brokers
    return {
        broker_id: each.rack
        for broker_id, each in context.cluster.image.brokers.items()
        if not each.fenced and broker_id not in lost
    }

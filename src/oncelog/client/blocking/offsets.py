"""Committed offsets of a group: read and written through its coordinator.

The requests, and what their answers mean, are those of ``machine.offsets``. Error codes are raised, not returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from oncelog.base.ids import TopicPartition
from oncelog.client.machine.offsets import (
    LAST_VERSION_BY_NAME,
    check_commit,
    committed_in,
    offset_commit_request,
    offset_fetch_request,
)
from oncelog.client.machine.offsets import Committed as Committed
from oncelog.client.machine.offsets import Membership as Membership
from oncelog.wire.message import Request, Response

if TYPE_CHECKING:
    from oncelog.client.blocking.client import Client

R = TypeVar("R", bound=Response)


def at_coordinator(
    client: Client, group: str, message: Request[R], *, at_most: int | None = None, timeout_ms: int | None = None
) -> R:
    """Send a request to a group's coordinator once. The caller looks at the error codes."""
    link = client.link(client.coordinator(group))
    return link.call(message, link.versions.choose(message, at_most, old=True), timeout_ms)


def committed_offsets(
    client: Client, group: str, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = False
) -> dict[TopicPartition, Committed]:
    """The committed offsets of a group, for some partitions or all; without those it has no offset for.

    ``require_stable`` waits for the transactions that have offsets pending (KIP-447); a consumer that reads on from
    these offsets needs it.
    """
    message = offset_fetch_request(group, partitions, require_stable=require_stable)
    return client.retrying(
        lambda: committed_in(at_coordinator(client, group, message, at_most=LAST_VERSION_BY_NAME), group)
    )


def commit_offsets(
    client: Client,
    group: str,
    offsets: Mapping[TopicPartition, Committed],
    membership: Membership | None = None,
) -> None:
    """Commit offsets for a group. Raises BrokerRefused for the first partition that is refused."""
    if offsets:
        message = offset_commit_request(group, offsets, membership or Membership())
        client.retrying(
            lambda: check_commit(at_coordinator(client, group, message, at_most=LAST_VERSION_BY_NAME), group)
        )

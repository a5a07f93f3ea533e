"""Offsets that a group has committed, read and written through its coordinator.

The requests, and what their answers mean, are those of ``machine.offsets``. Error codes are raised, not returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from oncelog.base.ids import TopicPartition
from oncelog.client.machine.offsets import (
    LAST_VERSION_BY_NAME,
    Committed,
    Membership,
    check_commit,
    committed_in,
    offset_commit_request,
    offset_fetch_request,
)
from oncelog.client.programs.cluster import Cluster
from oncelog.client.programs.operation import operation
from oncelog.client.programs.steps import Program


@operation
def committed_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = False
) -> Program[dict[TopicPartition, Committed]]:
    """The committed offsets of a group, for some partitions or all; without those it has no offset for.

    ``require_stable`` waits for the transactions that have offsets pending (KIP-447); a consumer that reads on from
    these offsets needs it.
    """
    message = offset_fetch_request(group, partitions, require_stable=require_stable)

    def attempt() -> Program[dict[TopicPartition, Committed]]:
        response = yield from cluster.at_coordinator(group, message, at_most=LAST_VERSION_BY_NAME)
        return committed_in(response, group)

    return (yield from cluster.retrying(attempt))


@operation
def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, Committed],
    membership: Membership | None = None,
) -> Program[None]:
    """Commit offsets for a group. Raises BrokerRefused for the first partition that is refused."""
    if not offsets:
        return
    message = offset_commit_request(group, offsets, membership or Membership())

    def attempt() -> Program[None]:
        check_commit((yield from cluster.at_coordinator(group, message, at_most=LAST_VERSION_BY_NAME)), group)

    yield from cluster.retrying(attempt)

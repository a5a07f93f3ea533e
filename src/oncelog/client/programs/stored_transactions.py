"""Ends a transaction under a stored identity: EndTxn of another producer's transaction (KIP-939 calls it prepared)."""

from __future__ import annotations

from typing import Final

from oncelog.client.machine.transaction_values import StoredTransaction
from oncelog.client.machine.transactions import TRANSACTION_FEATURE
from oncelog.client.programs.cluster import TRANSACTION_KEY, Cluster
from oncelog.client.programs.operation import operation
from oncelog.client.programs.steps import Call, Program
from oncelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

_FEATURE_LEVEL_BY_EPOCH: Final = 2
_LAST_END_BY_STATE: Final = 4
"""EndTxn up to this version recognizes a retry by the state, later ones by the epoch (KIP-890)."""


@operation
def send_end(
    cluster: Cluster, stored: StoredTransaction, *, commit: bool, keeps_epoch: bool = False
) -> Program[EndTxnResponse]:
    """Send one EndTxn to the coordinator. Returns its answer, whatever the error code. Not retried.

    With ``keeps_epoch`` it is the request of a client of Transactions V1, which can repeat its own afterwards.
    """
    coordinator = yield from cluster.coordinator(stored.transactional_id, TRANSACTION_KEY)
    link = yield from cluster.link(coordinator)
    message = EndTxnRequest(
        transactional_id=stored.transactional_id,
        producer_id=stored.producer_id,
        producer_epoch=stored.producer_epoch,
        committed=commit,
    )
    by_epoch = link.versions.features.get(TRANSACTION_FEATURE, 0) >= _FEATURE_LEVEL_BY_EPOCH
    version = link.versions.choose(message, None if by_epoch and not keeps_epoch else _LAST_END_BY_STATE)
    answer: EndTxnResponse = yield Call(link, message, version)
    return answer

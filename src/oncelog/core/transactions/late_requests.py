"""Recognises late requests of Transactions V1 by their connections (KAFKA-17754)."""

from __future__ import annotations

from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TransactionalId
from oncelog.core.transactions.identity import Identity
from oncelog.core.transactions.model import AddReply, AddRequest, EndReply, EndRequest, Reply, TransactionRequest
from oncelog.core.transactions.settings import TRANSACTIONS_V2

MAX_IDS: Final = 10_000  # those whose transactions ended last


# A V1 producer keeps its epoch, so its requests do not say for which transaction they are. A client sends them over one
# connection at a time: once it has ended a transaction over a newer one, the network has held back what comes over an
# older one. Off by default: processes that share a producer's identity would refuse one another.
class LateRequests:
    def __init__(self) -> None:
        self._connections: dict[TransactionalId, tuple[Identity, int]] = {}

    def refusal(self, request: TransactionRequest, current: Identity | None) -> Reply | None:
        # ``current``: the identity that the transactional id has.
        if not isinstance(request, AddRequest | EndRequest) or request.connection_id is None:
            return None
        if request.client_version >= TRANSACTIONS_V2 or request.identity != current:
            return None
        identity, connection_id = self._connections.get(request.transactional_id, (None, 0))
        is_end = isinstance(request, EndRequest)
        if identity == current and request.connection_id < connection_id:
            # The client that closed the connection does not read it. One that did not must not retry for ever.
            return (EndReply if is_end else AddReply)(ErrorCode.INVALID_TXN_STATE)
        if is_end:
            self._remember(request.transactional_id, request.identity, request.connection_id)
        return None

    def _remember(self, transactional_id: TransactionalId, identity: Identity, connection_id: int) -> None:
        self._connections.pop(transactional_id, None)
        if len(self._connections) >= MAX_IDS:
            del self._connections[next(iter(self._connections))]
        self._connections[transactional_id] = identity, connection_id

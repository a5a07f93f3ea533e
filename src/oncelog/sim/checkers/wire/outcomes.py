"""W11 to W13: a transaction ends one way, and a producer id with an epoch belongs to one incarnation of one producer.

EndTxn 5 (Transactions V2) gives every transaction an epoch: it is asked with epoch e, the markers carry e + 1, and no
other transaction has them. Older transactions share epochs; the disk observer and histories check those.
"""

from __future__ import annotations

from typing import Final

from oncelog.sim.checkers.wire.exchange import Exchange, Report
from oncelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

OUTCOMES: Final = "W11 transaction ended both ways"
EPOCH_SHARED: Final = "W12 producer epoch handed out twice"
ID_SHARED: Final = "W13 producer id of two owners"
TRANSACTIONS_V2: Final = 5
_LAST_EPOCH: Final = 32_765
"""Beyond, a producer gets a new id and the arithmetic of epochs another meaning."""
Claim = tuple[object, ...]


class Outcomes:
    """Ends of transactions, and owners of producer ids and epochs."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._ends: dict[tuple[int, int], tuple[bool, str]] = {}
        """(producer id, epoch of the markers) → (committed, who says so)."""
        self._marks: dict[tuple[int, int, bool], str] = {}
        self._owners: dict[int, str] = {}
        self._claims: dict[tuple[int, int], Claim] = {}

    def ended(self, asked: Exchange, response: EndTxnResponse, index: int) -> None:
        request: EndTxnRequest = asked.request
        if response.error_code or asked.version < TRANSACTIONS_V2:
            return
        producer, epoch = request.producer_id, request.producer_epoch
        if response.producer_id >= 0:
            claim = "EndTxn", producer, epoch
            self._given(request.transactional_id, response.producer_id, response.producer_epoch, claim)
        if epoch < _LAST_EPOCH:
            name, said = (producer, epoch + 1), (request.committed, f"EndTxn of {request.transactional_id}")
            self._agree(name, self._ends.setdefault(name, said), said)
            against = self._marks.get((*name, not request.committed))
            if against is not None:
                self._agree(name, (not request.committed, against), said)

    def marked(self, producer_id: int, epoch: int, committed: bool, where: str) -> None:
        name, said = (producer_id, epoch), (committed, where)
        ended = self._ends.get(name)
        if ended is not None:
            self._agree(name, ended, said)
        self._marks.setdefault((*name, committed), where)

    def _agree(self, name: tuple[int, int], one: tuple[bool, str], other: tuple[bool, str]) -> None:
        if one[0] != other[0]:
            first, second = (f"{'commit' if committed else 'abort'} by {who}" for committed, who in (one, other))
            self._report(OUTCOMES, f"producer {name[0]}, epoch {name[1]}: {first}, {second}")

    def initialised(self, asked: Exchange, response: InitProducerIdResponse, index: int) -> None:
        """An InitProducerId response. Only who asks again with the id it has may be given the same twice."""
        request: InitProducerIdRequest = asked.request
        if response.error_code:
            return
        claim: Claim = ("InitProducerId", index)
        if request.transactional_id is not None and request.producer_id >= 0:
            claim = "InitProducerId", request.producer_id, request.producer_epoch
        owner = f"producer of {index}" if request.transactional_id is None else request.transactional_id
        self._given(owner, response.producer_id, response.producer_epoch, claim)

    def _given(self, owner: str, producer_id: int, epoch: int, claim: Claim) -> None:
        known = self._owners.setdefault(producer_id, owner)
        if known != owner:
            self._report(ID_SHARED, f"producer id {producer_id} of {known} and of {owner}")
        elif self._claims.setdefault((producer_id, epoch), claim) != claim:
            self._report(EPOCH_SHARED, f"producer id {producer_id}, epoch {epoch}, of {owner}")

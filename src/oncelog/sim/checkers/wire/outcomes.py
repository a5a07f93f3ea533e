"""W11 to W13: a transaction ends one way, and a producer id with an epoch belongs to one incarnation of one producer.

After EndTxn 5 (Transactions V2) with epoch e only this transaction's markers have e + 1. Older transactions share
epochs: the disk observer and the histories check those.
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
# Beyond this epoch a producer gets a new id, and epochs are counted differently.
_LAST_EPOCH: Final = 32_765
Claim = tuple[object, ...]


class Outcomes:
    def __init__(self, report: Report) -> None:
        self._report = report
        # (producer id, epoch of the markers) → (committed, its source).
        self._ends: dict[tuple[int, int], tuple[bool, str]] = {}
        self._marks: dict[tuple[int, int, bool], str] = {}
        self._owners: dict[int, str] = {}
        self._claims: dict[tuple[int, int], Claim] = {}

    def ended(self, exchange: Exchange, response: EndTxnResponse, index: int) -> None:
        request: EndTxnRequest = exchange.request
        if response.error_code or exchange.version < TRANSACTIONS_V2:
            return
        producer, epoch = request.producer_id, request.producer_epoch
        if response.producer_id >= 0:
            claim = "EndTxn", producer, epoch
            self._assign(request.transactional_id, response.producer_id, response.producer_epoch, claim)
        if epoch < _LAST_EPOCH:
            name, outcome = (producer, epoch + 1), (request.committed, f"EndTxn of {request.transactional_id}")
            self._agree(name, self._ends.setdefault(name, outcome), outcome)
            opposite_marker = self._marks.get((*name, not request.committed))
            if opposite_marker is not None:
                self._agree(name, (not request.committed, opposite_marker), outcome)

    def marked(self, producer_id: int, epoch: int, committed: bool, source: str) -> None:
        name, outcome = (producer_id, epoch), (committed, source)
        ended = self._ends.get(name)
        if ended is not None:
            self._agree(name, ended, outcome)
        self._marks.setdefault((*name, committed), source)

    def _agree(self, name: tuple[int, int], first_outcome: tuple[bool, str], second_outcome: tuple[bool, str]) -> None:
        if first_outcome[0] != second_outcome[0]:
            first, second = (
                f"{'commit' if committed else 'abort'} by {source}"
                for committed, source in (first_outcome, second_outcome)
            )
            self._report(OUTCOMES, f"producer {name[0]}, epoch {name[1]}: {first}, {second}")

    def initialised(self, exchange: Exchange, response: InitProducerIdResponse, index: int) -> None:
        request: InitProducerIdRequest = exchange.request
        if response.error_code:
            return
        # Only a retry, with the id and epoch that it has, may get the same response twice.
        claim: Claim = ("InitProducerId", index)
        if request.transactional_id is not None and request.producer_id >= 0:
            claim = "InitProducerId", request.producer_id, request.producer_epoch
        owner = f"producer of {index}" if request.transactional_id is None else request.transactional_id
        self._assign(owner, response.producer_id, response.producer_epoch, claim)

    def _assign(self, owner: str, producer_id: int, epoch: int, claim: Claim) -> None:
        known_owner = self._owners.setdefault(producer_id, owner)
        if known_owner != owner:
            self._report(ID_SHARED, f"producer id {producer_id} of {known_owner} and of {owner}")
        elif self._claims.setdefault((producer_id, epoch), claim) != claim:
            self._report(EPOCH_SHARED, f"producer id {producer_id}, epoch {epoch}, of {owner}")

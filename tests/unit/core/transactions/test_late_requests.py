"""Requests of Transactions V1 over an older connection than that of the last EndTxn are late (KAFKA-17754)."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import ProducerEpoch, ProducerId, TransactionalId
from oncelog.core.transactions import late_requests
from oncelog.core.transactions.identity import Identity
from oncelog.core.transactions.late_requests import LateRequests
from oncelog.core.transactions.model import AddReply, AddRequest, EndReply, EndRequest

A, B = TransactionalId("a"), TransactionalId("b")
FIRST, SECOND = (Identity(ProducerId(7), ProducerEpoch(epoch)) for epoch in range(2))


def end(
    connection_id: int | None, identity: Identity = FIRST, name: TransactionalId = A, version: int = 0
) -> EndRequest:
    return EndRequest(name, identity, True, version, connection_id)


def add(connection_id: int, version: int = 0) -> AddRequest:
    return AddRequest(A, FIRST, [], version, connection_id=connection_id)


def test_a_request_over_an_older_connection_is_late() -> None:
    requests = LateRequests()
    assert requests.refusal(end(1), FIRST) is None
    assert requests.refusal(add(1), FIRST) is None
    assert requests.refusal(end(2), FIRST) is None
    assert requests.refusal(end(1), FIRST) == EndReply(ErrorCode.INVALID_TXN_STATE)
    assert requests.refusal(add(1), FIRST) == AddReply(ErrorCode.INVALID_TXN_STATE)
    assert requests.refusal(end(2), FIRST) is None
    assert requests.refusal(end(3), FIRST) is None


def test_another_process_that_adds_partitions_does_not_make_the_ending_one_late() -> None:
    requests = LateRequests()
    assert requests.refusal(end(1), FIRST) is None
    assert requests.refusal(add(5), FIRST) is None
    assert requests.refusal(end(1), FIRST) is None


def test_v2_other_identities_and_brokers_are_never_late() -> None:
    requests = LateRequests()
    assert requests.refusal(end(5), FIRST) is None
    assert requests.refusal(end(1, version=2), FIRST) is None
    assert requests.refusal(end(None), FIRST) is None
    assert requests.refusal(add(1, version=2), FIRST) is None
    assert requests.refusal(end(1, SECOND), SECOND) is None, "another instance, or the same one again"
    assert requests.refusal(end(1, name=B), FIRST) is None


def test_a_request_of_a_wrong_identity_changes_nothing() -> None:
    requests = LateRequests()
    assert requests.refusal(end(9, SECOND), FIRST) is None
    assert requests.refusal(end(9), None) is None
    assert requests.refusal(end(1), FIRST) is None


def test_only_the_last_ids_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_requests, "MAX_IDS", 2)
    requests = LateRequests()
    for name in (A, B, A, TransactionalId("c")):
        assert requests.refusal(end(5, name=name), FIRST) is None
    assert requests.refusal(end(1, name=A), FIRST) is not None
    assert requests.refusal(end(1, name=B), FIRST) is None

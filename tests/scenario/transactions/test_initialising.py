"""InitProducerId meets an open transaction, a prepared one, a zombie, its own retry, limits."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.base.transaction_verdicts import NEVER_TIMES_OUT
from oncelog.core.transactions.model import InitReply
from oncelog.core.transactions.settings import TransactionSettings
from tests.scenario.transactions.driver import Driver, identity


def test_initialising_meets_an_open_transaction() -> None:
    """It is fenced and aborted, and only then the new instance gets its epoch: it is not told to come again."""
    driver = Driver(writes_markers=False)
    old = driver.init().identity
    driver.add(old, 0)
    assert driver.init() is None
    parked = driver.last_token
    assert (driver.state(), driver.sent[-1].committed, driver.sent[-1].identity) == ("PrepareAbort", False, (1000, 1))
    assert driver.end(old, commit=True) is None
    ending = driver.last_token
    driver.write_markers()
    assert driver.replies[parked] == InitReply(E.NONE, identity(1000, 2))
    assert driver.replies[ending].error_code is E.PRODUCER_FENCED
    assert driver.add(old, 0) is E.PRODUCER_FENCED


def test_initialising_meets_a_prepared_transaction() -> None:
    """It waits for the markers; two that wait get different epochs, in order."""
    driver = Driver(writes_markers=False)
    me = driver.init().identity
    driver.add(me, 0)
    driver.end(me, commit=True)
    assert driver.init() is None
    assert driver.init() is None
    driver.write_markers()
    assert [driver.replies[token].identity for token in (5, 6)] == [(1000, 2), (1000, 3)]


def test_a_stale_epoch_aborts_nothing() -> None:
    """Apache Kafka lets a zombie that brings its old epoch abort its successor's transaction."""
    driver = Driver()
    old = driver.init().identity
    me = driver.init().identity
    driver.add(me, 0)
    assert driver.init(old).error_code is E.PRODUCER_FENCED
    assert driver.state() == "Ongoing"
    assert driver.init(me).identity == (1000, 2)


def test_a_retried_initialisation_gets_the_same_epoch() -> None:
    """KIP-360, until another instance comes."""
    driver = Driver()
    me = driver.init().identity
    raised = driver.init(me).identity
    assert driver.init(me).identity == raised == (1000, 1)
    driver.init()
    assert driver.init(me).error_code is E.PRODUCER_FENCED


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_time_outs_have_limits(timeout_ms: int) -> None:
    """transaction.max.timeout.ms; not in two-phase commit."""
    driver = Driver(TransactionSettings(two_phase_commit_enable=True))
    assert driver.init(timeout_ms=timeout_ms).error_code is E.INVALID_TRANSACTION_TIMEOUT
    assert driver.init(timeout_ms=timeout_ms, two_phase=True).error_code is E.NONE
    assert driver.held().timeout_ms == NEVER_TIMES_OUT
    assert driver.init(tid="").error_code is E.INVALID_REQUEST
    assert driver.init(tid="é" * 16_384).error_code is E.INVALID_REQUEST

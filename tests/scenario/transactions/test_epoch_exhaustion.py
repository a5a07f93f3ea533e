"""A producer id without an epoch left: rotation, its retries, and nobody ever being given 32767."""

from __future__ import annotations

from oncelog.base.errors import ErrorCode as E
from oncelog.core.transactions.model import NeedsProducerId
from oncelog.core.transactions.settings import TransactionSettings
from tests.scenario.transactions.driver import Driver, identity


def test_the_last_epoch_rotates_the_producer_id_and_the_retry_is_recognised() -> None:
    """Exhaustion at EndTxn: markers carry 32767, the client goes on with a new id; a retry names the old one."""
    driver = Driver(writes_markers=False)
    driver.init()
    me = driver.at_epoch(32766)
    driver.add(me, 0)
    first = driver.end(me, commit=True)
    assert first.identity == (1001, 0)
    assert driver.sent[0].identity == (1000, 32767)
    driver.write_markers()
    assert driver.held().identity == (1001, 0)
    assert driver.end(me, commit=True) == first
    assert driver.restarted().end(me, commit=True) == first
    assert driver.end(me, commit=False).error_code is E.INVALID_TXN_STATE
    assert driver.add(first.identity, 0) is E.NONE


def test_a_rotation_survives_a_crash_between_prepare_and_complete() -> None:
    """The next producer id is in the log."""
    driver = Driver(writes_markers=False)
    driver.init()
    me = driver.at_epoch(32766)
    driver.add(me, 0)
    driver.end(me, commit=True)
    again = driver.restarted()
    again.write_markers()
    assert again.held().identity == (1001, 0)
    assert again.end(me, commit=True).identity == (1001, 0)


def test_initialising_with_an_exhausted_epoch_rotates() -> None:
    """And a retry of that is given the same answer (KIP-360)."""
    driver = Driver()
    driver.init()
    me = driver.at_epoch(32766)
    assert driver.init(me).identity == (1001, 0)
    assert driver.init(me).identity == (1001, 0)
    assert driver.init().identity == (1001, 1)
    assert driver.init(me).error_code is E.PRODUCER_FENCED


def test_no_client_gets_epoch_32767() -> None:
    """Before V2 a fence may use it; the next instance gets a new producer id."""
    driver = Driver(TransactionSettings(transaction_version=0))
    driver.init()
    me = driver.at_epoch(32766)
    driver.add(me, 0, version=0)
    assert driver.init().identity == (1001, 0)
    assert driver.sent[-1].identity == (1000, 32767)
    assert driver.add(identity(1000, 32767), 0, version=0) is E.INVALID_PRODUCER_ID_MAPPING


def test_who_waited_may_have_to_fetch_a_producer_id() -> None:
    """It is sent to fetch one when the transaction has completed, and asks again."""
    driver = Driver(TransactionSettings(transaction_version=0), writes_markers=False)
    driver.init()
    me = driver.at_epoch(32766)
    driver.add(me, 0, version=0)
    driver.end(me, commit=True, version=0)
    assert driver.init(me) is None
    driver.write_markers()
    assert driver.replies[driver.last_token] == NeedsProducerId()
    assert driver.init(me).identity == (1001, 0)


def test_epoch_32767_opens_nothing() -> None:
    """Nobody was given it: who names it has guessed."""
    driver = Driver(TransactionSettings(transaction_version=0))
    driver.init()
    me = driver.at_epoch(32766)
    driver.add(me, 0, version=0)
    driver.advance(100_000)
    assert driver.held().identity == (1000, 32767)
    guess = identity(1000, 32767)
    assert driver.add(guess, 0, version=0) is E.PRODUCER_FENCED
    assert driver.end(guess, commit=False).error_code is E.PRODUCER_FENCED
    assert driver.end(guess, commit=False, version=0).error_code is E.PRODUCER_FENCED
    assert driver.end(me, commit=False).error_code is E.PRODUCER_FENCED

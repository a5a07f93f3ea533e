"""A committed offset never goes back: OffsetFetch passes over nothing that a decided transaction has pending.

Whoever was told of a commit, and asks a broker that has died and come back for the offset, must not be told the one
from before: a copier that goes on from there copies twice. Apache Kafka 4.3.1 tells it, unless stable offsets are asked
for; here clients of all versions wait until the transaction has its marker.
"""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import CONSUMER_OFFSETS
from oncelog.node.coordinators import log_batches as loading
from oncelog.storage.log import append as log_append
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest
from oncelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.scenario.node.driver import Peer
from tests.scenario.node.requests import create_topic
from tests.scenario.transactions.node_client import (
    GROUP,
    SETTINGS,
    SOURCE,
    TOPIC,
    Client,
    StepwiseDriver,
    committed_offset,
    open_producers,
    run,
    state_of,
)

WAIT_MS = 5000
"""``oncelog.transaction.wait.ms``."""
BEFORE, AFTER = 3, 7
"""The offsets that were committed before, and in, the transaction."""
VERSIONS = [1, 2, 5, 6, 7, 8, 9]
IDS = ("x", *(f"other-{number}" for number in range(10)))


@pytest.fixture
def driver(monkeypatch) -> StepwiseDriver:
    """A node that loads one batch in a turn: the coordinator of transactions, with more of them, after the group's."""
    monkeypatch.setattr(loading, "SLICE_BYTES", 1)
    driver = StepwiseDriver(SETTINGS)
    create_topic(driver.connect(), TOPIC, 1)
    create_topic(driver.connect(), SOURCE, 1)
    for name in IDS[1:]:
        run(driver.connect(), Client(name).initialise())
    return driver


def begun(driver: StepwiseDriver, *, v2: bool = True) -> Client:
    """A client that has committed an offset in one transaction and sent another in the next, which is open."""
    client = Client(IDS[0], v2)
    run(driver.connect(), client.initialise())
    run(driver.connect(), client.transaction("a", (0,), True, BEFORE))
    run(driver.connect(), client.transaction("b", (0,), None, AFTER))
    return client


def end_and_die(driver: StepwiseDriver, client: Client, *, committed: bool = True, seed: int | None = None) -> None:
    """EndTxn is answered, and in this instant the process is killed (``seed``: the power fails); it starts again and
    goes on until the group can be asked. The transaction's coordinator is loading then."""
    driver.hold_turns = True
    assert run(driver.connect(), client.end(committed)) == E.NONE
    assert open_producers(driver, 0), "no marker is written yet"
    restart(driver, seed)
    while not any(driver.node.groups.shards()):
        turn(driver)
    assert driver.node.transactions.is_loading()


def restart(driver: StepwiseDriver, seed: int | None) -> None:
    """Start again after the process was killed, or after a power cut."""
    if seed is not None:
        driver.crash_and_restart(seed)
        return
    driver.held.clear()
    driver.session.close()
    driver.start()


def turn(driver: StepwiseDriver) -> None:
    """Let the node have its next turn, and hold the one after it."""
    held, driver.held = driver.held, []
    assert held, "the node has nothing more to do"
    for effect in held:
        driver.hold_turns = False
        event = driver._event_of(effect)
        driver.hold_turns = True
        driver.dispatch(event)


def turns(driver: StepwiseDriver) -> None:
    """Let the node have all its turns."""
    while driver.held:
        turn(driver)


def asked(driver: StepwiseDriver, version: int, *, stable: bool = False, everything: bool = False) -> Peer:
    """A client that has sent an OffsetFetch."""
    peer = driver.connect()
    name = {"name": SOURCE, "partition_indexes": [0]}
    if version >= 8:
        topics = None if everything else [OffsetFetchRequestTopics(**name)]
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
        peer.send(OffsetFetchRequest(groups=[group], require_stable=stable), version)
    else:
        topics = None if everything else [OffsetFetchRequestTopic(**name)]
        peer.send(OffsetFetchRequest(group_id=GROUP, topics=topics, require_stable=stable), version)
    return peer


def told(peer: Peer) -> int | E | None:
    """The offset or the error that the client was answered; None: it waits."""
    if not peer.responses:
        return None
    response = peer.responses.popleft()
    of_group = response.groups[0] if response.groups else response
    if of_group.error_code or not of_group.topics:
        return E(of_group.error_code) if of_group.error_code else -1
    (partition,) = of_group.topics[0].partitions
    return E(partition.error_code) if partition.error_code else partition.committed_offset


@pytest.mark.parametrize("v2", [True, False], ids=["v2", "v1"])
@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("version", VERSIONS)
def test_an_offset_does_not_go_back_when_the_broker_dies_after_it_was_committed(
    driver: StepwiseDriver, version: int, committed: bool, v2: bool
) -> None:
    end_and_die(driver, begun(driver, v2=v2), committed=committed)
    peer = asked(driver, version)
    assert told(peer) is None
    turns(driver)
    assert told(peer) == (AFTER if committed else BEFORE)
    assert state_of(driver, IDS[0]) == ("CompleteCommit" if committed else "CompleteAbort")


@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_is_no_different(driver: StepwiseDriver, seed: int) -> None:
    end_and_die(driver, begun(driver), seed=seed)
    peer = asked(driver, 1)
    assert told(peer) is None
    turns(driver)
    assert told(peer) == AFTER


@pytest.mark.parametrize("version", [2, 7, 8])
def test_nor_when_everything_is_asked_for(driver: StepwiseDriver, version: int) -> None:
    end_and_die(driver, begun(driver))
    peer = asked(driver, version, everything=True)
    assert told(peer) is None
    turns(driver)
    assert told(peer) == AFTER


@pytest.mark.parametrize("stable", [True, False])
def test_a_partition_that_has_nothing_committed_yet_is_not_left_out(driver: StepwiseDriver, stable: bool) -> None:
    """Everything that is committed is listed: what is pending only would be missing, also from what is stable."""
    client = Client(IDS[0])
    run(driver.connect(), client.initialise())
    run(driver.connect(), client.transaction("a", (0,), None, AFTER))
    end_and_die(driver, client)
    peer = asked(driver, 8, stable=stable, everything=True)
    assert told(peer) is None
    turns(driver)
    assert told(peer) == AFTER


@pytest.mark.parametrize("version", [7, 8])
def test_who_requires_stable_offsets_is_told_at_once_that_they_are_not(driver: StepwiseDriver, version: int) -> None:
    """As by Apache Kafka."""
    end_and_die(driver, begun(driver))
    assert told(asked(driver, version, stable=True)) is E.UNSTABLE_OFFSET_COMMIT
    turns(driver)
    assert told(asked(driver, version, stable=True)) == AFTER


@pytest.mark.parametrize("version", VERSIONS)
def test_an_open_transaction_holds_nobody_up(driver: StepwiseDriver, version: int) -> None:
    """As in Apache Kafka; but while coordinators are loading nobody knows that it is open."""
    begun(driver)
    assert told(asked(driver, version)) == BEFORE
    driver.hold_turns = True
    restart(driver, None)
    while not any(driver.node.groups.shards()):
        turn(driver)
    peer = asked(driver, version)
    assert told(peer) is None
    turns(driver)
    assert told(peer) == BEFORE


@pytest.mark.parametrize("version", VERSIONS)
def test_the_wait_for_coordinators_that_load_is_bounded(driver: StepwiseDriver, version: int) -> None:
    end_and_die(driver, begun(driver))
    peer = asked(driver, version)
    driver.advance(WAIT_MS - 1)
    assert told(peer) is None
    driver.advance(1)
    assert told(peer) is E.COORDINATOR_LOAD_IN_PROGRESS
    turns(driver)
    assert told(asked(driver, version)) == AFTER


def refuse_markers_of_offsets(monkeypatch) -> list[object]:
    """The log of offsets takes no marker, as on a full disk; what was refused."""
    refused: list[object] = []
    append = log_append.append_batch

    def append_or_refuse(log, records, **options):
        if log.partition.topic == CONSUMER_OFFSETS and "transaction_version" in options:
            refused.append(records)
            raise OSError(28, "no space left on device")
        return append(log, records, **options)

    monkeypatch.setattr(log_append, "append_batch", append_or_refuse)
    return refused


@pytest.mark.parametrize("version", [1, 5, 8])
def test_markers_that_the_log_refuses_are_waited_for_too(driver: StepwiseDriver, monkeypatch, version: int) -> None:
    client = begun(driver)
    refused = refuse_markers_of_offsets(monkeypatch)
    assert run(driver.connect(), client.end(True)) == E.NONE
    peer, patient = asked(driver, version), asked(driver, version)
    driver.advance(WAIT_MS // 2)
    late = asked(driver, version)
    driver.advance(WAIT_MS // 2)
    assert refused
    assert (told(peer), told(patient), told(late)) == (E.COORDINATOR_LOAD_IN_PROGRESS,) * 2 + (None,)
    monkeypatch.undo()
    driver.advance(200)
    assert (told(late), told(asked(driver, version))) == (AFTER, AFTER)


def test_a_client_that_leaves_is_forgotten(driver: StepwiseDriver, monkeypatch) -> None:
    client = begun(driver)
    refuse_markers_of_offsets(monkeypatch)
    assert run(driver.connect(), client.end(True)) == E.NONE
    driver.disconnect(asked(driver, 1))
    assert driver.node.transactions.marker_waits._queries == {}
    monkeypatch.undo()
    driver.advance(200)
    assert committed_offset(driver) == AFTER


def test_who_waits_is_answered_when_the_ids_are_gone(driver: StepwiseDriver, monkeypatch) -> None:
    """With the topic of the transactions their decisions are gone: nobody will ever write the marker."""
    client = begun(driver)
    refuse_markers_of_offsets(monkeypatch)
    assert run(driver.connect(), client.end(True)) == E.NONE
    peer = asked(driver, 1)
    assert told(peer) is None
    driver.connect().send(DeleteTopicsRequest(topic_names=["__transaction_state"], timeout_ms=1000), 3)
    assert told(peer) == BEFORE

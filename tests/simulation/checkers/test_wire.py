"""The wire observer: planted conversations that break one rule each, and conversations that come close to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.wire.messages.fetch import FetchRequest
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from oncelog.wire.messages.produce import ProduceRequest
from tests.simulation.checkers.talk import NEW, OLD, Talk, batch, fetched, marker

Conversation = Callable[[Talk], None]


def data(at: int = 0, sequence: int = 0, epoch: int = 0, producer: int = 7, *, transactional: bool = True) -> bytes:
    return batch("v", at=at, producer=producer, epoch=epoch, sequence=sequence, transactional=transactional)


def end(at: int, epoch: int = 1, *, commit: bool = True, reign: int = 0) -> bytes:
    return marker(commit=commit, at=at, producer=7, epoch=epoch, reign=reign)


def high_watermark_falls(talk: Talk) -> None:
    talk.fetch(high=5, stable=2)
    talk.list_latest(4)


def acknowledged_is_not_readable(talk: Talk) -> None:
    talk.produce(batch("a", "b"), 4)
    talk.fetch(high=5, stable=5)


def stable_offset_falls(talk: Talk) -> None:
    talk.fetch(high=5, stable=4)
    talk.list_latest(3, isolation=1)


def log_start_falls(talk: Talk) -> None:
    talk.fetch(high=5, start=3)
    talk.list_latest(2, timestamp=-2)


def stable_offset_is_beyond(talk: Talk) -> None:
    talk.fetch(high=5, stable=6)


def acknowledged_twice_the_same_offset(talk: Talk) -> None:
    talk.produce(batch("a", "b", "c"), 0)
    talk.produce(batch("d"), 2)


def duplicate_gets_another_offset(talk: Talk) -> None:
    talk.produce(data(), 3)
    talk.produce(data(), 4)


def batch_is_elsewhere_than_acknowledged(talk: Talk) -> None:
    talk.produce(data(transactional=False), 3)
    talk.fetch(data(at=4, transactional=False))


def uncommitted_data_is_read(talk: Talk) -> None:
    talk.fetch(data(at=3), high=5, stable=3)


def log_changes(talk: Talk) -> None:
    talk.fetch(batch("a", at=3), batch("b", at=4))
    talk.fetch(batch("c", at=4))


def batches_overlap(talk: Talk) -> None:
    talk.fetch(batch("a", "b", at=3), batch("c", at=4))


def zombie_writes(talk: Talk) -> None:
    talk.fetch(data(at=3, epoch=2, transactional=False), data(at=4, epoch=1, transactional=False))


def coordinator_epoch_falls(talk: Talk) -> None:
    talk.fetch(data(), end(1, reign=2))
    talk.fetch(data(at=2, epoch=1), end(3, epoch=2, reign=1))


def aborted_data_is_not_listed(talk: Talk) -> None:
    talk.fetch(data(), end(1, commit=False))


def committed_data_is_listed(talk: Talk) -> None:
    talk.fetch(data(), end(1), aborted=((7, 0),))


def marker_is_the_other_than_agreed(talk: Talk) -> None:
    talk.end(7, 0, commit=True)
    talk.fetch(data(), end(1, commit=False), aborted=((7, 0),))


def agreed_to_both(talk: Talk) -> None:
    talk.end(7, 0, commit=True)
    talk.end(7, 0, commit=False)


def epoch_handed_out_twice(talk: Talk) -> None:
    talk.init(7, 0)
    talk.end(7, 0, commit=True)
    talk.init(7, 1)


def id_of_two_owners(talk: Talk) -> None:
    talk.init(7, 0, owner="x")
    talk.init(7, 1, owner="y")


def idempotent_producers_share_an_id(talk: Talk) -> None:
    talk.init(7, 0, owner=None)
    talk.init(7, 1, owner=None)


def generation_falls(talk: Talk) -> None:
    talk.join(3)
    talk.join(2)


def generation_falls_after_a_restart(talk: Talk) -> None:
    talk.join(3)
    talk.sync(3)
    talk.restart()
    talk.join(2)


def generation_has_two_leaders(talk: Talk) -> None:
    talk.join(3, leader="m")
    talk.join(3, leader="n")


def generation_has_two_static_leaders(talk: Talk) -> None:
    talk.join(3, leader="s", member="s", instance="s")
    talk.join(3, leader="t", member="t", instance="t")


def commit_is_lost(talk: Talk) -> None:
    talk.commit(5)
    talk.read_back(-1)


def older_commit_is_back(talk: Talk) -> None:
    talk.commit(5, answered=False)
    talk.commit(6)
    talk.restart()
    talk.commit(7)
    talk.read_back(5)


def offset_of_a_transaction_is_lost(talk: Talk) -> None:
    talk.commit(5)
    talk.commit_in_transaction(6, 7, 0)
    talk.end(7, 0, commit=True)
    talk.read_back(5)


def offset_of_an_aborted_transaction_counts(talk: Talk) -> None:
    talk.commit(5)
    talk.commit_in_transaction(6, 7, 0)
    talk.end(7, 0, commit=False)
    talk.read_back(6)


PLANTED: list[tuple[str, Conversation]] = [
    ("W1", high_watermark_falls),
    ("W1", acknowledged_is_not_readable),
    ("W2", stable_offset_falls),
    ("W3", log_start_falls),
    ("W4", stable_offset_is_beyond),
    ("W5", acknowledged_twice_the_same_offset),
    ("W6", duplicate_gets_another_offset),
    ("W6", batch_is_elsewhere_than_acknowledged),
    ("W7", uncommitted_data_is_read),
    ("W8", log_changes),
    ("W8", batches_overlap),
    ("W9", zombie_writes),
    ("W9", coordinator_epoch_falls),
    ("W10", aborted_data_is_not_listed),
    ("W10", committed_data_is_listed),
    ("W11", marker_is_the_other_than_agreed),
    ("W11", agreed_to_both),
    ("W12", epoch_handed_out_twice),
    ("W13", id_of_two_owners),
    ("W13", idempotent_producers_share_an_id),
    ("W14", generation_falls),
    ("W14", generation_falls_after_a_restart),
    ("W15", generation_has_two_leaders),
    ("W15", generation_has_two_static_leaders),
    ("W16", commit_is_lost),
    ("W16", older_commit_is_back),
    ("W16", offset_of_a_transaction_is_lost),
    ("W16", offset_of_an_aborted_transaction_counts),
]


@pytest.mark.parametrize(("rule", "conversation"), PLANTED, ids=lambda item: getattr(item, "__name__", item))
def test_a_broken_rule_is_found_and_nothing_else(rule: str, conversation: Conversation) -> None:
    talk = Talk()
    conversation(talk)
    assert [name.partition(" ")[0] for name in talk.observer.violations] == [rule]


def overtaken_responses(talk: Talk) -> None:
    """Decided before the other, sent after it: it was held back behind a produce of its connection."""
    waiting = talk.ask(FetchRequest(isolation_level=1))
    talk.fetch(high=6, stable=5, start=2)
    talk.answer(waiting, fetched(high=5, stable=4, start=1))
    talk.fetch(high=6, stable=5, start=2)


def restart_forgets_what_was_not_durable(talk: Talk) -> None:
    talk.fetch(high=6)
    talk.produce(data(transactional=False), 6, acks=1)
    talk.restart()
    talk.fetch(high=5)
    talk.produce(batch("other"), 6)
    talk.produce(data(transactional=False), 7)


def power_is_lost_without_syncing(talk: Talk) -> None:
    talk.produce(batch("a"), 0)
    talk.fetch(batch("a"), high=1)
    talk.restart(keeps_all=False)
    talk.produce(batch("b"), 0)
    talk.fetch(batch("b"), high=1)


def duplicate_gets_its_offset_again(talk: Talk) -> None:
    talk.produce(data(), 3)
    talk.produce(data(sequence=1), 4)
    talk.restart()
    talk.produce(data(), 3)
    talk.produce(data(epoch=1), 5)


def offsets_of_a_transaction_all_have_sequence_0(talk: Talk) -> None:
    talk.fetch(data(), data(at=1), end(2), topic="__consumer_offsets", high=3)


def topic_is_deleted_and_created_again(talk: Talk) -> None:
    learn(talk, OLD)
    talk.produce(batch("a", "b"), 0)
    talk.fetch(batch("a", "b"), topic="", topic_id=OLD, high=2)
    talk.ask(DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=OLD)]))
    talk.produce(batch("c"), 0)
    learn(talk, NEW)
    talk.fetch(batch("c"), topic="", topic_id=NEW, high=1)
    talk.commit(0)


def learn(talk: Talk, topic_id: bytes) -> None:
    talk.say(MetadataRequest(), MetadataResponse(topics=[MetadataResponseTopic(name="t", topic_id=topic_id)]))


def transactions_one_after_the_other(talk: Talk) -> None:
    talk.init(7, 0)
    talk.end(7, 0, commit=True)
    talk.end(7, 0, commit=True)
    talk.end(7, 1, commit=False)
    committed = data(), end(1)
    aborted = data(at=2, epoch=1), end(3, epoch=2, commit=False, reign=-1)
    talk.fetch(*committed, *aborted, aborted=((7, 2),))
    talk.fetch(*aborted, end(4, epoch=2, commit=False), aborted=((7, 2),))
    talk.fetch(*aborted, isolation=0)
    talk.init(7, 3, having=(7, 2))
    talk.init(7, 3, having=(7, 2))


def older_transactions_share_an_epoch(talk: Talk) -> None:
    talk.init(7, 0)
    talk.end(7, 0, commit=True, version=3)
    talk.end(7, 0, commit=False, version=3)
    talk.fetch(data(), end(1, epoch=0), data(at=2, sequence=1), end(3, epoch=0, commit=False), aborted=((7, 2),))


def joined_and_never_synced(talk: Talk) -> None:
    talk.join(3)
    talk.sync(3)
    talk.join(4, leader="m")
    talk.restart()
    talk.join(4, leader="n")


def static_leader_comes_back(talk: Talk) -> None:
    talk.join(3, leader="s1", member="s1", instance="s")
    talk.join(3, leader="s2", member="s2", instance="s")


def static_leader_comes_back_and_is_not_told(talk: Talk) -> None:
    talk.join(3, leader="s2", member="m", instance="t")
    talk.join(3, leader="s3", member="s3", instance="s")


def commits_that_may_have_happened(talk: Talk) -> None:
    talk.read_back(-1)
    talk.commit(4, answered=False)
    talk.read_back(-1)
    talk.commit(5)
    talk.commit(9, error=22)
    talk.read_back(5)
    talk.read_back(4)
    talk.commit_in_transaction(6, 7, 0)
    talk.read_back(6)
    talk.end(7, 0, commit=True)
    talk.read_back(5, stable=False)
    talk.read_back(6)
    talk.restart()
    talk.commit(8)
    talk.read_back(8)


CLOSE: list[Conversation] = [
    overtaken_responses,
    restart_forgets_what_was_not_durable,
    power_is_lost_without_syncing,
    duplicate_gets_its_offset_again,
    offsets_of_a_transaction_all_have_sequence_0,
    topic_is_deleted_and_created_again,
    transactions_one_after_the_other,
    older_transactions_share_an_epoch,
    joined_and_never_synced,
    static_leader_comes_back,
    static_leader_comes_back_and_is_not_told,
    commits_that_may_have_happened,
]


@pytest.mark.parametrize("conversation", CLOSE, ids=lambda item: item.__name__)
def test_what_is_allowed_is_left_alone(conversation: Conversation) -> None:
    talk = Talk()
    conversation(talk)
    assert talk.observer.violations == {}


def test_who_waits_is_known() -> None:
    talk = Talk()
    talk.ask(FetchRequest())
    talk.ask(ProduceRequest(acks=0))
    talk.fetch()
    assert [waiting.request for waiting in talk.observer.waiting(99)] == ["FetchRequest"]
    talk.observer.disconnected("c")
    assert talk.observer.waiting(99) == []


def test_the_disk_is_told_what_was_acknowledged_by_all() -> None:
    talk = Talk()
    learn(talk, OLD)
    talk.produce(batch("a", "b"), 4)
    talk.produce(batch("c"), 6, acks=1)
    (sent,) = talk.observer.acknowledged_batches()
    assert (sent.partition, sent.topic_id, sent.offset) == (("t", 0), OLD, 4)


def test_a_duplicate_stands_for_the_batch_that_was_acknowledged_first() -> None:
    """A leader that is cut off answers so to whoever names the producer, its epoch and the sequence."""
    talk = Talk()
    learn(talk, OLD)
    first, other = (batch(value, producer=7, epoch=0, sequence=0) for value in ("v", "of somebody else"))
    talk.produce(first, 3)
    (acknowledged,) = talk.observer.acknowledged_batches()
    talk.produce(other, 3)
    assert talk.observer.acknowledged_batches() == [acknowledged]


def _joined_and_synced(talk: Talk, broker_id: int, generation: int) -> None:
    talk.broker_id = broker_id
    talk.join(generation)
    talk.sync(generation)


def test_a_coordinator_that_does_not_know_of_the_next_may_go_on_from_its_own_generation() -> None:
    talk = Talk(is_cluster=True)
    _joined_and_synced(talk, 1, 3)
    _joined_and_synced(talk, 2, 6)
    talk.broker_id = 1
    talk.join(4)
    assert talk.observer.violations == {}


@pytest.mark.parametrize("died", [True, False])
def test_a_coordinator_that_begins_has_every_generation_that_was_synced(died: bool) -> None:
    talk = Talk(is_cluster=True)
    if died:
        _joined_and_synced(talk, 2, 3)
        talk.observer.broker_died(1, 2, [])
    _joined_and_synced(talk, 1, 6)
    talk.broker_id = 2
    talk.join(4)
    assert [name.partition(" ")[0] for name in talk.observer.violations] == ["W14"]

"""Every kind of hang made for real, among innocents of every kind; on our broker and on Apache Kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

import pytest

from oncelog.admin.topics import NewTopic, create_topic, delete_topics
from oncelog.admin.transactions.abort_marker import abort, find_one, write_abort_marker
from oncelog.admin.transactions.cluster_scan import Scope, find_hanging, scan
from oncelog.admin.transactions.partition_offsets import bounds_of
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.base.transaction_verdicts import ReasonCode, Verdict
from oncelog.client.blocking import Client
from oncelog.client.errors import BrokerRefused
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from tests.interop.admin.lab import ByHand, at, committed, make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
HOUR_MS = 3_600_000


def long_ago() -> int:
    return int(time.time() * 1000) - HOUR_MS


def verdicts(client: Client, topics: Iterable[str], min_age_ms: int | None = None) -> dict[TopicPartition, Verdict]:
    scanned = scan(client, Scope(tuple(topics)), min_age_ms=min_age_ms)
    assert not scanned.unanswered
    return {transaction.topic_partition: transaction.verdict for transaction in scanned.transactions}


def unknown_producer(client: Client, name: str) -> ByHand:
    """A producer whose id no coordinator knows: as after the loss of the transaction log, or its expiry."""
    made = ByHand(client, f"{name}-seed")
    made.producer_id = client.request(
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    ).producer_id
    made.epoch, made.name = 0, name
    return made


class Hangs:
    """One of each kind, all of an hour ago, by the partition where it hangs."""

    def __init__(self, client: Client, prefix: str) -> None:
        self.client, self.prefix = client, prefix
        self.where: dict[str, TopicPartition] = {}
        self.topics: list[str] = []

    def topic(self, kind: str, partitions: int = 1) -> str:
        name = f"{self.prefix}-{kind}"
        make_topic(self.client, name, partitions)
        self.topics.append(name)
        return name

    def make(self) -> None:
        self.late_write()
        self.forgotten()
        self.moved_on()
        self.not_listed()
        self.recreated_topic()

    def late_write(self) -> None:
        """KAFKA-9144: the batch comes after the marker of its own transaction."""
        place = at(self.topic("late"))
        producer = ByHand(self.client, f"{self.prefix}-late")
        producer.begin(place, timestamp_ms=long_ago())
        producer.end()
        producer.write(place, b"hangs", timestamp_ms=long_ago())
        self.where["late"] = place

    def forgotten(self) -> None:
        place = at(self.topic("forgotten"))
        unknown_producer(self.client, f"{self.prefix}-forgotten").write(place, b"hangs", timestamp_ms=long_ago())
        self.where["forgotten"] = place

    def moved_on(self) -> None:
        """A zombie writes where nobody has told of the newer epoch."""
        topic = self.topic("zombie", 2)
        zombie = ByHand(self.client, f"{self.prefix}-zombie")
        zombie.begin(at(topic, 0), timestamp_ms=long_ago())
        ByHand(self.client, zombie.name)
        zombie.write(at(topic, 1), b"hangs", timestamp_ms=long_ago())
        self.where["zombie"] = at(topic, 1)

    def not_listed(self) -> None:
        """The transaction goes on elsewhere, and never heard of this partition."""
        topic = self.topic("unlisted", 2)
        self.goes_on = ByHand(self.client, f"{self.prefix}-unlisted", timeout_ms=900_000)
        self.goes_on.begin(at(topic, 0), timestamp_ms=long_ago())
        self.goes_on.write(at(topic, 1), b"hangs", timestamp_ms=long_ago())
        self.where["unlisted"] = at(topic, 1)

    def recreated_topic(self) -> None:
        """The topic goes while its transaction is open, and its namesake gets the rest of it."""
        topic = self.topic("again")
        producer = ByHand(self.client, f"{self.prefix}-again")
        producer.begin(at(topic), timestamp_ms=long_ago())
        delete_topics(self.client, [topic])
        producer.end()
        self.client.view.forget(topic)
        wait_until(
            lambda: not self.client.metadata([topic])[topic].exists,  # type: ignore[index]  # a name
            "the topic's deletion",
        )
        create_topic(self.client, NewTopic(topic, partitions=1, replication_factor=1))
        self.client.metadata([topic])
        self.client.topic(topic)
        producer.write(at(topic), b"hangs", timestamp_ms=long_ago())
        self.where["again"] = at(topic)


class Innocents:
    """Open transactions that somebody is going to end, by partition."""

    def __init__(self, client: Client, prefix: str, *, two_phase: bool) -> None:
        self.topic = f"{prefix}-innocent"
        make_topic(client, self.topic, 5)
        live, drip, paused, legal = (
            ByHand(client, f"{prefix}-{name}", timeout_ms=900_000) for name in ("live", "drip", "paused", "legal")
        )
        live.begin(at(self.topic, 0))
        drip.begin(at(self.topic, 1), timestamp_ms=long_ago())
        drip.write(at(self.topic, 1))
        paused.begin(at(self.topic, 2), timestamp_ms=long_ago())
        legal.begin(at(self.topic, 3), timestamp_ms=0)
        self.open = {at(self.topic, index): one for index, one in enumerate((live, drip, paused, legal))}
        self.verdicts = dict.fromkeys(self.open, Verdict.LIVE)
        if two_phase:
            prepared = ByHand(client, f"{prefix}-prepared", two_phase=True)
            prepared.begin(at(self.topic, 4), timestamp_ms=0)
            self.open[at(self.topic, 4)] = prepared
            self.verdicts[at(self.topic, 4)] = Verdict.TWO_PHASE
        done = ByHand(client, f"{prefix}-done")
        done.begin(at(self.topic, 4))
        done.end()


def test_all_that_hangs_and_nothing_else_is_found_and_ended(
    client: Client, servers: str, request: pytest.FixtureRequest
) -> None:
    ours = "oncelog" in request.node.name
    hangs = Hangs(client, "all")
    hangs.make()
    innocents = Innocents(client, "all", two_phase=ours)
    topics = [*hangs.topics, innocents.topic]
    actual = verdicts(client, topics)
    assert {where for where, one in actual.items() if one is Verdict.HANGING} == set(hangs.where.values())
    assert {verdict: actual[verdict] for verdict in innocents.verdicts} == innocents.verdicts

    rows = find_hanging(client, Scope(tuple(topics)))
    by_kind = {kind: next(row for row in rows if at(row.topic, row.partition) == w) for kind, w in hangs.where.items()}
    assert {kind: row.transactional_id for kind, row in by_kind.items()} == {
        "late": "all-late",
        "forgotten": "all-forgotten" if ours else None,
        "zombie": "all-zombie",
        "unlisted": "all-unlisted",
        "again": "all-again",
    }
    assert all(HOUR_MS - 1 <= (row.age_ms or 0) < HOUR_MS + 60_000 and row.records_behind == 1 for row in rows)

    for item in scan(client, Scope(tuple(topics))).of(Verdict.HANGING):
        assert item.takes_start_offset is ours
        result = abort(client, item)
        assert (result.error, result.stable_after) == (None, result.end_offset), result
    assert verdicts(client, topics, min_age_ms=0).keys() == {*innocents.open, at("all-unlisted", 0)}
    for place, producer in innocents.open.items():
        producer.write(place, b"more")
        producer.end()
        assert committed(client, place)[-2:] == [b"v", b"more"]
    hangs.goes_on.end()
    assert committed(client, at("all-unlisted", 0)) == [b"v"]
    for kind, place in hangs.where.items():
        assert committed(client, place) == ([b"v"] if kind == "late" else [])
    assert verdicts(client, topics) == {}


def test_a_young_orphan_is_suspected_until_its_age_is_asked_for(client: Client) -> None:
    make_topic(client, "young")
    unknown_producer(client, "young").write(at("young"))
    assert verdicts(client, ["young"]) == {at("young"): Verdict.SUSPECTED}
    assert verdicts(client, ["young"], min_age_ms=0) == {at("young"): Verdict.HANGING}
    (row,) = scan(client, Scope(("young",)), min_age_ms=0).transactions
    assert abort(client, row).error is not None, "the default age is asked for again"
    assert abort(client, row, min_age_ms=0).error is None


def test_what_has_changed_since_it_was_found_is_left_alone(client: Client, request: pytest.FixtureRequest) -> None:
    make_topic(client, "stale")
    producer = ByHand(client, "stale")
    producer.begin(at("stale"))
    producer.end()
    producer.write(at("stale"), b"late")
    result = find_one(client, at("stale"), 2)
    assert (result.verdict, result.code) == (Verdict.HANGING, ReasonCode.ENDED)
    producer.add(at("stale"))  # its next transaction takes the late batch in
    joined = abort(client, result, min_age_ms=0)
    assert "live" in (joined.error or "")
    producer.end(commit=False)
    gone = abort(client, result, min_age_ms=0)
    assert "ended in the meantime" in (gone.error or "")
    producer.begin(at("stale"))
    if "oncelog" in request.node.name:
        with pytest.raises(BrokerRefused) as refused:
            write_abort_marker(client, result)
        assert refused.value.code == ErrorCode.INVALID_TXN_STATE
        producer.end()
        assert committed(client, at("stale")) == [b"v", b"v"]


def test_aborting_while_coordinators_complete_tears_nothing(client: Client, servers: str) -> None:
    make_topic(client, "race", 3)
    late = ByHand(client, "race-late")
    late.begin(at("race", 2))
    late.end()
    late.write(at("race", 2), b"late")
    kept: list[bytes] = []
    stop = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with Client(servers, config=client.config) as own:
                producer = ByHand(own, "race-live")
                for number in range(10_000):
                    commit = number % 4 != 3
                    producer.add(at("race", 0), at("race", 1))
                    for index in range(2):
                        producer.write(at("race", index), b"%d" % number)
                    producer.end(commit=commit, wait=False)
                    if commit:
                        kept.append(b"%d" % number)
                    if stop.is_set():
                        return
        except BaseException as error:  # noqa: BLE001  # told to the test
            failures.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    ended = []
    scans = 0
    try:
        while scans < 10 or not ended or len(kept) <= 3:
            assert worker.is_alive(), failures
            scans += 1
            hanging = scan(client, Scope(("race",)), min_age_ms=0).of(Verdict.HANGING)
            ended += [(item.topic_partition, abort(client, item, min_age_ms=0).error) for item in hanging]
    finally:
        stop.set()
        worker.join()
    assert not failures
    assert ended == [(at("race", 2), None)]
    for partition in (at("race", 0), at("race", 1)):
        wait_until(lambda one=partition: not bounds_of(client, [one])[0][one].held, f"the end of {partition}")
    assert [committed(client, at("race", index)) for index in range(2)] == [kept, kept]

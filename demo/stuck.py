"""A consumer sticks behind a transaction that nobody is going to end; it is explained, ended, and the consumer goes on.

Everything is real: a producer process is killed in the middle of its transaction, and one batch comes after the marker
of its transaction, as it could before Apache Kafka checked for that (KAFKA-9144); so the broker here does not check.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from demo.console import browser, console, take
from demo.processes import ONCELOG, broker
from demo.terminal import Output, Terminal
from oncelog.base.ids import TopicName
from oncelog.base.ids import TopicPartition as Partition
from oncelog.client.blocking import Client
from oncelog.client.errors import BrokerRefused
from oncelog.client.programs.cluster import TRANSACTION_KEY
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC = "bookings"
GROUP = "check-in-desk"
HUNG, KILLED = "booking-service-3", "booking-service-4"
BOOKINGS = 500
PAGES = {
    "console-overview": "/overview",
    "console-transactions": "/transactions?min_age_ms=0",
    "console-explain": f"/explain?kind=group&name={GROUP}",
    "console-messages": f"/messages?topic={TOPIC}&partition=0&from=0",
    "console-group-dark": f"/groups/one?name={GROUP}",
}
"""Pages of the console while the consumer is stuck, and the names of their pictures."""
PAGES_AFTER = {"console-metrics": "/metrics?minutes=5"}
LOOK_S = 6
"""Seconds in which the console looks at the cluster once more."""

_KILLED_IN_THE_MIDDLE = """
import sys, time
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "transactional.id": sys.argv[2], "log_level": 0})
producer.init_transactions(20)
producer.begin_transaction()
producer.produce(sys.argv[3], b"half a booking", partition=1)
producer.flush(20)
print("written", flush=True)
time.sleep(60)
"""


def stuck(out: Path, told: Output, pictures: Path | None = None) -> bool:
    """Play the scene; True if the consumer got everything that was committed, and nothing else. Pictures of the console
    go into a directory below ``out`` unless another one is named."""
    out.mkdir(parents=True, exist_ok=True)
    told.step("another broker, that does not verify late batches: a consumer gets stuck")
    with (
        broker(out / "broker", out / "broker.log", "transaction.partition.verification.enable=false") as (address, _),
        console(address, out / "console.log") as pages,
    ):
        told.say(f"    oncelog console: {pages} as long as this scene lasts")
        _oncelog(address, "topic", "create", TOPIC, "--partitions", "2")
        _kill_in_the_middle(address)
        told.say(f"    {KILLED} was killed in the middle of its transaction, in {TOPIC}-1")
        with Client(address) as client:
            _plant(client)
        told.say(f"    a batch of {HUNG} came after the marker of its transaction, in {TOPIC}-0")
        _book(address)
        told.say(f"    {BOOKINGS} bookings were committed to {TOPIC}-0 since")
        consumer = _consumer(address)
        try:
            before = _read(consumer, 1)
            told.say(f"    {GROUP}, read_committed, sees {before} and sticks")
            told.step(f"oncelog txn explain --group {GROUP}")
            _say(told, _oncelog(address, "txn", "explain", "--group", GROUP))
            if browser() is None:
                told.say("    (no pictures of the console: they need Chromium and Playwright for Python)")
            _picture(pages, PAGES, pictures or out / "pictures", told)
            told.step(f"oncelog txn abort --topic {TOPIC} --partition 0 --start-offset 2 --yes")
            _say(told, _oncelog(address, "txn", "abort", "-t", TOPIC, "-p", "0", "--start-offset", "2", "--yes"))
            after = _read(consumer, BOOKINGS)
        finally:
            consumer.close()
        told.say(f"    {GROUP} goes on: {after} of {BOOKINGS} bookings")
        if browser() is not None:
            time.sleep(LOOK_S)
            _picture(pages, PAGES_AFTER, pictures or out / "pictures", told)
        left = _oncelog(address, "txn", "find-hanging", "--min-age-ms", "0")
        _say(told, left)
        told.say(f"    (the live one is {KILLED}'s: its coordinator ends it when its time-out is over)")
    return before == 1 and after == BOOKINGS and left.startswith("0 hanging")


def _picture(address: str, pages: Mapping[str, str], directory: Path, told: Output) -> None:
    if browser() is not None:
        told.step("the console, as it looks now")
        for one in take(address, pages, directory):
            told.say(f"    {one}")


def _oncelog(address: str, *arguments: str) -> str:
    command = [ONCELOG, *arguments, "--bootstrap-servers", address]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def _say(told: Output, text: str) -> None:
    for line in text.rstrip().splitlines():
        told.say(f"    {line}".rstrip())


def _kill_in_the_middle(address: str) -> None:
    command = [sys.executable, "-c", _KILLED_IN_THE_MIDDLE, address, KILLED, TOPIC]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()


def _plant(client: Client) -> None:
    """A transaction by hand, with the requests of old clients: one batch, the commit, and one batch more."""
    coordinator = client.link(client.coordinator(HUNG, TRANSACTION_KEY))
    # What is open for longer than its time-out, and no coordinator ends, counts as hanging.
    initialize = InitProducerIdRequest(transactional_id=HUNG, transaction_timeout_ms=1_000)
    identity = coordinator.call(initialize, 4)
    producer: dict[str, Any] = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
    partition = AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=HUNG,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=[partition],
    )
    coordinator.call(added, 3)
    leader = client.link(client.leader(Partition(TopicName(TOPIC), 0)))
    _write(leader, producer, 0, b"booking 0")
    ended = coordinator.call(EndTxnRequest(transactional_id=HUNG, committed=True, **producer), 3)
    if ended.error_code:
        raise BrokerRefused(ended.error_code, HUNG)
    _write(leader, producer, 1, b"a booking too late")


def _write(leader: Any, producer: dict[str, Any], sequence: int, value: bytes) -> None:
    record = Record(0, int(time.time() * 1000), None, value, ())
    batch = build_batch([record], base_sequence=sequence, transactional=True, **producer)
    data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
    answer = leader.call(ProduceRequest(transactional_id=HUNG, acks=-1, timeout_ms=10_000, topic_data=[data]), 8)
    code = answer.responses[0].partition_responses[0].error_code
    if code:
        raise BrokerRefused(code, TOPIC)


def _book(address: str) -> None:
    producer = Producer({"bootstrap.servers": address, "transactional.id": "booking-service-1", "log_level": 0})
    producer.init_transactions(20)
    producer.begin_transaction()
    for number in range(BOOKINGS):
        producer.produce(TOPIC, b"booking %d" % number, partition=0)
    producer.commit_transaction(20)


def _consumer(address: str) -> Any:
    settings = {"group.id": GROUP, "isolation.level": "read_committed", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": address, **settings})
    consumer.assign([TopicPartition(TOPIC, index, OFFSET_BEGINNING) for index in range(2)])
    return consumer


def _read(consumer: Any, count: int) -> int:
    """Read until there are ``count`` records and a second brings no more, or ten bring none; commit what was read."""
    seen = 0
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        messages = [one for one in consumer.consume(1000, 1) if not one.error()]
        seen += len(messages)
        if messages:
            offsets = [TopicPartition(TOPIC, one.partition(), one.offset() + 1) for one in messages[-1:]]
            consumer.commit(offsets=offsets, asynchronous=False)
        elif seen >= count:
            break
    return seen


if __name__ == "__main__":
    sys.exit(not stuck(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-out/stuck"), Terminal()))

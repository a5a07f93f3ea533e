"""A broker's flight recording, made by a real broker with a real client, happens again in the simulator."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer

from oncelog.node.observation.flight_recorder import RecordingUnreadable, read_recording
from oncelog.sim.seeds.flight_replay import replay
from oncelog.testing import Broker
from tests.waiting import HANG_S

CONFIG = {"oncelog.flight.recorder.max.bytes": "20000000", "log.sync.policy": "commit"}


def _use(broker: Broker, name: str) -> None:
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer({**servers, "transactional.id": name, "linger.ms": "0"})
    producer.init_transactions(HANG_S)
    for number in range(3):
        producer.begin_transaction()
        producer.produce("t", f"{name}-{number}")
        producer.commit_transaction(HANG_S) if number != 1 else producer.abort_transaction(HANG_S)
    consumer = Consumer({**servers, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    assert consumer.poll(HANG_S) is not None
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.mark.slow
def test_what_happened_to_a_broker_happens_again(tmp_path) -> None:
    with Broker(CONFIG, data_dir=tmp_path) as broker:
        _use(broker, "first")
        broker.restart()
        _use(broker, "second")
    for name in ("flight-recording.previous.jsonl", "flight-recording.jsonl"):
        recording = read_recording((tmp_path / name).read_bytes().splitlines(keepends=True))
        replayed = replay(recording)
        assert (replayed.differs_at, replayed.failure, replayed.end) == (None, None, "the broker stopped"), name
        assert replayed.events == len(recording.moments) > 50


def test_a_recording_that_is_torn_or_none_is_told_apart() -> None:
    begin = b'{"what":"begin","format":3,"config":{},"listen":["localhost",1],"now_ms":1}\n'
    assert read_recording([begin, b'{"what":"tok']).tokens == []
    for lines in (
        [],
        [b"x\n"],
        [b'{"what":"token","token":"AA=="}\n'],
        [begin.replace(b":3,", b":2,", 1)],
        [begin.replace(b":3,", b":9,", 1)],
    ):
        with pytest.raises(RecordingUnreadable):
            read_recording(lines)

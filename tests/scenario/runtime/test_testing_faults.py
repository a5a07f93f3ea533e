"""``broker.faults``: the faults that a test may cause, seen by unmodified clients."""

from __future__ import annotations

import socket
import threading

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from oncelog.testing import Broker
from tests.scenario.runtime.test_testing_broker import consume
from tests.waiting import HANG_S, wait_until

pytestmark = pytest.mark.slow

QUICK = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "retry.backoff.ms": 10, "linger.ms": 0}


@pytest.fixture(scope="module")
def shared():
    with Broker() as running:
        yield running


@pytest.fixture
def broker(shared):
    shared.reset()
    create_topic(shared)
    return shared


def create_topic(broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(HANG_S)


def producer(broker, **settings) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, **QUICK, **settings})


def deliver(sender: Producer, value: bytes, topic: str = "t") -> list:
    """The outcome that the client is told of one record."""
    outcomes: list = []
    sender.produce(topic, value, on_delivery=lambda error, _message: outcomes.append(error))
    assert sender.flush(HANG_S) == 0
    return outcomes


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_a_produce_is_met_by_a_retry_and_the_record_is_there_once(broker, when):
    sender = producer(broker, **{"enable.idempotence": True})
    assert deliver(sender, b"a") == [None]
    with broker.faults.kill("Produce", when) as kill:
        assert deliver(sender, b"b") == [None]
        assert [hit.api for hit in kill.wait().hits] == ["Produce"]
    assert consume(broker, "t", 2) == [b"a", b"b"]
    assert deliver(sender, b"c") == [None]


def test_a_broker_stays_down_until_it_is_started_or_the_fault_ends(broker):
    address, port = broker.bootstrap_servers, broker.port
    sender = producer(broker)
    with broker.faults.kill("Produce", down_s=None) as kill:
        sender.produce("t", b"a")
        sender.poll(0)
        kill.wait()
        assert not broker.is_running
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((broker.host, port), 1)
        with pytest.raises(OSError, match="in use"), socket.socket() as other:
            other.bind((broker.host, port))
    assert broker.is_running
    assert broker.bootstrap_servers == address
    assert sender.flush(HANG_S) == 0
    assert consume(broker, "t", 1) == [b"a"]


def test_an_idempotent_producer_is_not_deceived_by_a_lost_answer_and_another_is(broker):
    for idempotent in (True, False):
        sender = producer(broker, **{"enable.idempotence": idempotent, "client.id": f"p{idempotent}"})
        with broker.faults.drop("Produce", "after", client_id=f"p{idempotent}") as lost:
            assert deliver(sender, b"once" if idempotent else b"twice") == [None]
            assert lost.hit
    assert consume(broker, "t", 3) == [b"once", b"twice", b"twice"]


def test_a_request_that_never_took_effect_leaves_nothing(broker):
    sender = producer(broker, **{"message.send.max.retries": 0, "enable.idempotence": False})
    with broker.faults.drop("Produce", "before"):
        (error,) = deliver(sender, b"lost")
        assert error is not None
    assert deliver(sender, b"kept") == [None]
    assert consume(broker, "t", 1) == [b"kept"]


def test_an_error_is_answered_as_often_as_was_said_and_the_client_goes_on(broker):
    sender = producer(broker)
    with broker.faults.answer("Produce", "NOT_LEADER_OR_FOLLOWER", times=2, skip=1) as fault:
        assert deliver(sender, b"a") == [None]
        assert not fault.hit
        assert deliver(sender, b"b") == [None]
        assert len(fault.hits) == 2
    assert consume(broker, "t", 2) == [b"a", b"b"]


def test_what_fails_after_it_took_effect_is_there_all_the_same(broker):
    sender = producer(broker, **{"message.send.max.retries": 0, "enable.idempotence": False})
    with broker.faults.answer("Produce", "REQUEST_TIMED_OUT", "after", topic="t"):
        (error,) = deliver(sender, b"a")
        assert error.name() == "REQUEST_TIMED_OUT"
    assert consume(broker, "t", 1) == [b"a"]


def test_a_held_answer_waits_for_the_end_of_its_fault_and_others_do_not(broker):
    sender, other = producer(broker, **{"client.id": "held"}), producer(broker, **{"client.id": "other"})
    with broker.faults.hold("Produce", "after", client_id="held") as hold:
        sender.produce("t", b"a")
        sender.poll(0)
        hold.wait()
        assert deliver(other, b"b") == [None]
        assert sender.flush(0.05) == 1
    assert sender.flush(HANG_S) == 0
    assert consume(broker, "t", 2) == [b"a", b"b"]


def test_a_partition_without_a_leader_is_waited_for(broker):
    sender = producer(broker)
    assert deliver(sender, b"a") == [None]
    with broker.faults.no_leader("t") as fault:
        sender.produce("t", b"b")
        sender.poll(0)
        fault.wait(hits=2)
        metadata = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics("t", HANG_S)
        assert metadata.topics["t"].partitions[0].leader == -1
        assert sender.flush(0.05) == 1
    assert sender.flush(HANG_S) == 0
    assert consume(broker, "t", 2) == [b"a", b"b"]


def test_clients_that_are_cut_off_come_back_when_it_is_over(broker):
    sender, other = producer(broker, **{"client.id": "cut"}), producer(broker)
    assert deliver(sender, b"a") == [None]
    with broker.faults.cut("cut") as cut:
        sender.produce("t", b"b")
        sender.poll(0)
        cut.wait(hits=3)
        assert deliver(other, b"c") == [None]
    assert sender.flush(HANG_S) == 0
    assert consume(broker, "t", 3) == [b"a", b"c", b"b"]


def test_a_stalled_client_runs_into_its_time_out(broker):
    sender = producer(broker, **{"client.id": "stalled", "message.timeout.ms": 300, "socket.timeout.ms": 200})
    with broker.faults.stall(client_id="stalled") as stall:
        (error,) = deliver(sender, b"a")
        assert error.name() == "_MSG_TIMED_OUT"
        assert stall.hit


def test_a_hanging_transaction_stops_readers_until_it_is_aborted(broker):
    sender = producer(broker)
    assert deliver(sender, b"before") == [None]
    with broker.faults.hang_transaction("t") as hanging:
        assert deliver(sender, b"after") == [None]
        assert committed_end(broker) == hanging.first_offset
        broker.restart()
        assert committed_end(broker) == hanging.first_offset
    assert committed_end(broker) == hanging.first_offset + 3
    assert hanging.producer_epoch == 0


def committed_end(broker) -> int:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    _, high = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=HANG_S)
    consumer.close()
    return high


def test_the_id_of_a_hanging_transaction_may_be_the_applications_own(broker):
    sender = producer(broker, **{"transactional.id": "app"})
    sender.init_transactions(HANG_S)
    sender.begin_transaction()
    deliver(sender, b"a")
    with pytest.raises(RuntimeError, match="open"):
        broker.faults.hang_transaction("t", transactional_id="app")
    sender.commit_transaction(HANG_S)
    with broker.faults.hang_transaction("t", transactional_id="app"):
        sender.begin_transaction()  # it was not fenced
        sender.abort_transaction(HANG_S)


def test_virtual_time_passes_for_a_delay_too():
    with Broker(virtual_time=True) as broker:
        create_topic(broker)
        sender = producer(broker)
        with broker.faults.delay("Produce", 3600) as delay:
            sender.produce("t", b"a")
            sender.poll(0)
            delay.wait()
            broker.advance(3_500_000)
            assert sender.flush(0.05) == 1
            broker.advance(100_000)
            assert sender.flush(HANG_S) == 0


def test_a_slow_disk_delays_what_waits_for_it_and_a_failing_one_ends_the_broker():
    with Broker({"log.sync.policy": "commit"}) as broker:
        sender = producer(broker)
        assert deliver(sender, b"a") == [None]
        with broker.faults.slow_sync(30) as slow:
            sender.produce("t", b"b")
            sender.poll(0)
            slow.wait()
            assert sender.flush(0.05) == 1
        assert sender.flush(HANG_S) == 0
        failing = broker.faults.fail_sync()
        sender.produce("t", b"c")
        sender.poll(0)
        failing.wait()
        wait_until(lambda: sender.poll(0.01) is None or not broker.is_running, "the broker's end", poll_s=0)
        with pytest.raises(RuntimeError, match="could not sync"):
            broker.kill()
        broker.start()
        assert sender.flush(HANG_S) == 0
        assert consume(broker, "t", 3) == [b"a", b"b", b"c"]


def test_faults_from_many_threads_while_it_is_killed(broker):
    """Nothing hangs and nothing is left over, whoever is first."""
    sender = producer(broker)

    def harass(number: int) -> None:
        for _ in range(5):
            with broker.faults.kill("Produce"), broker.faults.delay("Produce", 0.001, times=None):
                sender.produce("t", b"%d" % number)
                sender.poll(0.01)

    threads = [threading.Thread(target=harass, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert sender.flush(HANG_S) == 0
    assert broker.is_running
    assert broker.faults.interception.requests == []


def test_mistakes_are_told_where_they_are_made(broker):
    with pytest.raises(ValueError, match="'EndTxn'\\?"):
        broker.faults.kill("EndTnx")
    with pytest.raises(ValueError, match="NO_SUCH"):
        broker.faults.answer("Produce", "NO_SUCH")
    with pytest.raises(ValueError, match="when='afterwards': a fault strikes 'before' or 'after'"):
        broker.faults.kill("EndTxn", "afterwards")
    with broker.faults.kill("Fetch") as never, pytest.raises(TimeoutError, match="before Fetch"):
        never.wait(0.01)


def test_a_reset_ends_what_was_forgotten(broker):
    broker.faults.stall()
    broker.reset()
    assert deliver(producer(broker), b"a") == [None]

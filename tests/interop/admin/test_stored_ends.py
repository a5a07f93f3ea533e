"""``oncelog txn commit``, and ``abort`` by an identity: on our broker and Apache Kafka, with V1 and V2 clients."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from oncelog.admin.flink.sink_state import COMMITTER_STATE, WRITER_STATE
from oncelog.admin.transactions.ending import end_stored, plan_end
from oncelog.admin.transactions.stored_identity import EndAction, IdentityState
from oncelog.admin.transactions.termination import force_terminate
from oncelog.admin.transactions.transactional_ids import describe_transaction
from oncelog.client.blocking import Client, TransactionalProducer, TransactionSettings
from oncelog.client.machine.offsets import Committed
from oncelog.client.machine.transaction_values import StoredTransaction
from oncelog.client.programs.group import commit_offsets
from tests.interop.admin.lab import ByHand, at, committed, make_topic
from tests.interop.cli.conftest import Ran, Run
from tests.interop.cli.conftest import run_at as run_at  # a fixture
from tests.unit.admin.flink import written

pytestmark = pytest.mark.slow


@pytest.fixture
def run(servers: str, run_at: Callable[[str], Run]) -> Run:
    return run_at(servers)


def identity(client: Client, name: str) -> StoredTransaction:
    row = describe_transaction(client, name)
    return StoredTransaction(name, row.producer_id, row.producer_epoch)


def arguments(stored: StoredTransaction) -> tuple[str, ...]:
    name, producer_id, epoch = stored
    return ("--transactional-id", name, "--producer-id", str(producer_id), "--epoch", str(epoch))


def document(ran: Ran) -> dict[str, Any]:
    (decoded,) = json.loads(ran.out)
    assert isinstance(decoded, dict)
    return decoded


def now() -> str:
    return f"@{int(time.time() * 1000)}"


def test_the_transaction_of_a_dead_v2_client_is_committed(run: Run, client: Client, tmp_path: Path) -> None:
    make_topic(client, "saved", 2)
    dead = TransactionalProducer(client, TransactionSettings("saved-job", timeout_ms=600_000))
    dead.initialize()
    for value in (b"first", b"second"):
        dead.begin()
        for partition in (0, 1):
            dead.send("saved", value, partition=partition)
        dead.flush()
        if value == b"first":
            dead.commit()
    stored = identity(client, "saved-job")
    commit_offsets(client, "saved-group", {at("saved"): Committed(2)})
    audit = tmp_path / "audit.jsonl"
    command = ("txn", "commit", *arguments(stored), "--audit-log", str(audit))

    planned = document(run(*command, "--dry-run", "--json"))
    assert (planned["action"], planned["state"], planned["records"], planned["race"]) == ("end", "open", 2, None)
    assert [(row["start_offset"], row["stable_after"]) for row in planned["partitions"]] == [(2, 4), (2, 4)]
    assert [group["group"] for group in planned["waiting"]["saved-0"]] == ["saved-group"]
    unasked = run(*command)
    assert (unasked.code, "--yes does it without asking" in unasked.err, audit.read_text()) == (1, True, "")
    text = " ".join(unasked.out.replace("•", "").split())
    assert "saved-job (producer id" in text
    assert "It has 2 records in 2 partitions" in text
    assert "Its coordinator aborts it at" in text
    assert committed(client, at("saved")) == [b"first"]

    done = run(*command, "--yes")
    assert (done.code, done.err) == (0, ""), done
    assert "saved-job is committed (CompleteCommit)" in done.out
    assert "saved-0: last stable offset 2 → 4, end 4" in done.out
    assert committed(client, at("saved")) == [b"first", b"second"]
    assert committed(client, at("saved", 1)) == [b"first", b"second"]
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(line["action"], line["outcome"], line["records"]) for line in lines] == [
        ("commit-transaction", "sending", 2),
        ("commit-transaction", "committed", 2),
    ]
    again = run(*command, "--yes", "--json")
    assert (again.code, document(again)["outcome"], document(again)["state"]) == (0, "nothing", "committed")
    refused = run("txn", "abort", *arguments(stored), "--yes")
    assert (refused.code, "saved-job is not aborted: It was committed" in refused.err) == (1, True)


def test_a_v1_client_s_next_transaction_is_not_taken_for_the_stored_one(run: Run, client: Client) -> None:
    make_topic(client, "again")
    producer = ByHand(client, "again", timeout_ms=600_000)
    producer.begin(at("again"))
    stored, stored_at = identity(client, "again"), now()
    assert document(run("txn", "commit", *arguments(stored), "--dry-run", "--json"))["race"] is not None
    time.sleep(0.005)  # so that the next one begins at a later millisecond
    producer.end()
    producer.begin(at("again"))
    assert identity(client, "again") == stored, "Transactions V1 keeps the epoch"

    for verb in ("commit", "abort"):
        refused = run("txn", verb, *arguments(stored), "--yes", "--json")
        assert (refused.code, document(refused)["state"]) == (1, "ambiguous"), refused
    timed = run("txn", "commit", *arguments(stored), "--stored-at", stored_at, "--yes", "--json")
    assert (timed.code, document(timed)["state"], document(timed)["outcome"]) == (0, "committed", "nothing")
    assert "a later transaction is open under the same identity" in document(timed)["reason"]
    assert describe_transaction(client, "again").state == "Ongoing"
    assert committed(client, at("again")) == [b"v"]
    meant = run("txn", "commit", *arguments(stored), "--stored-at", now(), "--yes", "--json")
    assert (meant.code, document(meant)["outcome"]) == (0, "committed"), meant
    assert committed(client, at("again")) == [b"v", b"v"]


def test_a_transaction_of_librdkafka_is_committed_or_aborted(run: Run, client: Client, servers: str) -> None:
    make_topic(client, "rd")
    for verb, state in (("commit", "CompleteCommit"), ("abort", "CompleteAbort")):
        settings = {"bootstrap.servers": servers, "transactional.id": f"rd-{verb}", "linger.ms": 1}
        dead = Producer(settings | {"transaction.timeout.ms": 600_000})
        dead.init_transactions(30)
        dead.begin_transaction()
        dead.produce("rd", verb.encode(), partition=0)
        dead.flush(30)
        stored = identity(client, f"rd-{verb}")
        done = run("txn", verb, *arguments(stored), "--yes", "--json")
        assert (done.code, document(done)["state_after"]) == (0, state), done
        assert identity(client, f"rd-{verb}") == stored, "a client of Transactions V1 can repeat its own request"
        del dead
    assert committed(client, at("rd")) == [b"commit"]


def test_a_time_out_that_was_faster_is_told(run: Run, client: Client) -> None:
    make_topic(client, "late")
    producer = ByHand(client, "late", timeout_ms=1_000)
    producer.begin(at("late"))
    stored = identity(client, "late")
    # As the coordinator would at its time-out: it aborts under a new epoch.
    time.sleep(1.1)
    force_terminate(client, "late")
    lost = run("txn", "commit", *arguments(stored), "--yes", "--json")
    assert (lost.code, document(lost)["outcome"], document(lost)["state"]) == (1, "refused", "aborted")
    assert "its records are lost for readers of committed records" in document(lost)["error"]
    done = run("txn", "abort", *arguments(stored), "--yes")
    assert (done.code, "There is nothing to do." in done.out) == (0, True)


def test_identities_that_name_nothing_open(run: Run, client: Client) -> None:
    make_topic(client, "other")
    producer = ByHand(client, "other")
    stored = identity(client, "other")
    empty = run("txn", "commit", *arguments(stored), "--yes", "--json")
    assert (empty.code, document(empty)["state"]) == (0, "empty")
    producer.begin(at("other"))
    for changed, state in (
        (stored._replace(producer_id=stored.producer_id + 100_000), "moved_on"),
        (stored._replace(producer_epoch=stored.producer_epoch + 5), "behind"),
        (stored._replace(transactional_id="other-unknown"), "expired"),
    ):
        refused = run("txn", "commit", *arguments(changed), "--yes", "--json")
        assert (refused.code, document(refused)["state"], document(refused)["outcome"]) == (1, state, "refused")
    assert describe_transaction(client, "other").state == "Ongoing"


def test_options_of_the_two_ways_to_abort_do_not_mix(run: Run) -> None:
    mixed = run("txn", "abort", "--transactional-id", "x", "--producer-id", "1", "--epoch", "0", "--all-hanging")
    assert (mixed.code, "it goes without --topic" in mixed.err) == (2, True)
    zero = run("txn", "abort", "--transactional-id", "x", "--producer-id", "1", "--epoch", "0", "--partition", "0")
    assert (zero.code, "it goes without --topic" in zero.err) == (2, True)
    both = run("txn", "commit", "--epoch", "0", "--from-spark-checkpoint", "x")
    assert (both.code, "one of them" in both.err) == (2, True)
    part = run("txn", "commit", "--transactional-id", "x")
    assert (part.code, "give --transactional-id, --producer-id and --epoch" in part.err) == (2, True)


def test_a_plan_that_is_overtaken_ends_nothing_else(client: Client) -> None:
    make_topic(client, "overtaken")
    producer = ByHand(client, "overtaken", timeout_ms=600_000)
    producer.begin(at("overtaken"))
    plan = plan_end(client, identity(client, "overtaken"), commit=False)
    time.sleep(0.005)  # so that the next one begins at a later millisecond
    producer.end()
    producer.begin(at("overtaken"))
    result = end_stored(client, plan)
    assert (result.sent, plan.action) == (False, EndAction.END)
    assert "It was committed" in (result.error or "")
    assert describe_transaction(client, "overtaken").state == "Ongoing"
    now_open = plan_end(client, plan.stored, commit=True)
    assert now_open.judgement.state is IdentityState.AMBIGUOUS
    producer.end()
    assert committed(client, at("overtaken")) == [b"v", b"v"]


def test_many_partitions_and_batches_of_others_between(client: Client) -> None:
    make_topic(client, "mixed", 3)
    earlier = ByHand(client, "mixed-earlier", timeout_ms=600_000)
    earlier.begin(at("mixed", 1))
    stored_producer = TransactionalProducer(client, TransactionSettings("mixed-job", timeout_ms=600_000))
    stored_producer.initialize()
    stored_producer.begin()
    for number in range(300):
        stored_producer.send("mixed", b"x" * 20_000, partition=number % 3)
    stored_producer.flush()
    later = ByHand(client, "mixed-later", timeout_ms=600_000)
    later.begin(at("mixed", 0))
    stored_producer.send("mixed", b"last", partition=0)
    stored_producer.flush()
    plan = plan_end(client, identity(client, "mixed-job"), commit=True)
    assert (plan.is_whole, plan.records) == (True, 301)
    assert plan.bytes > 300 * 20_000
    rows = {row.partition: row for row in plan.contents.partitions}
    assert (rows[0].records, rows[0].held_by, rows[0].stable_after) == (101, 100, 100)
    assert (rows[1].last_stable_offset, rows[1].stable_after) == (0, 0), "another transaction holds it"
    assert (rows[2].last_stable_offset, rows[2].stable_after) == (0, 101)
    result = end_stored(client, plan)
    assert result.error is None
    assert {partition.partition: bounds.last_stable_offset for partition, bounds in result.bounds.items()} == {
        0: 100,
        1: 0,
        2: 101,
    }
    for other in (earlier, later):
        other.end()


def test_checkpoints_that_are_none(run: Run, tmp_path: Path) -> None:
    (tmp_path / "_metadata").write_bytes(written.metadata(written.operator(written.subtask(None))))
    other = run("txn", "commit", "--from-flink-checkpoint", str(tmp_path), "--json")
    assert (other.code, "has no state of a KafkaSink" in other.err, other.out) == (1, True, "")
    none = run("txn", "commit", "--from-spark-checkpoint", str(tmp_path))
    assert (none.code, "give the checkpointLocation of a streaming query" in none.err) == (1, True)


def test_an_older_checkpoint_aborts_nothing(run: Run, client: Client, tmp_path: Path) -> None:
    make_topic(client, "older")
    stored = []
    for name in ("older-0-1", "older-0-2"):
        ByHand(client, name, timeout_ms=600_000).begin(at("older"))
        stored.append(identity(client, name))
    for number, newest in ((1, False), (2, True)):
        path = tmp_path / f"chk-{number}"
        path.mkdir()
        data, offsets = written.stream(written.writer("older", stored[number - 1].transactional_id))
        writer = written.operator_state(WRITER_STATE, offsets, written.inline(data))
        data, offsets = written.stream(
            written.committer([written.request(written.committable(stored[number - 1]))], number)
        )
        committer = written.operator_state(COMMITTER_STATE, offsets, written.inline(data))
        operators = (written.operator(written.subtask(writer)), written.operator(written.subtask(committer)))
        (path / "_metadata").write_bytes(written.metadata(*operators, checkpoint_id=number))
        if newest:
            older = run("txn", "abort", "--from-flink-checkpoint", str(tmp_path / "chk-1"), "--yes", "--json")
            assert (older.code, json.loads(older.out), "is newer and complete" in older.err) == (0, [], True)
    newer = run("txn", "abort", "--from-flink-checkpoint", str(path), "--yes", "--json")
    assert (newer.code, document(newer)["transactional_id"], document(newer)["outcome"]) == (0, "older-0-1", "aborted")
    saved = run("txn", "commit", "--from-flink-checkpoint", str(path), "--yes", "--json")
    assert (saved.code, document(saved)["transactional_id"], document(saved)["outcome"]) == (
        0,
        "older-0-2",
        "committed",
    )
    assert committed(client, at("older")) == [b"v"]

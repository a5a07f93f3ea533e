"""Transactions that a dead query left open, with the decisions of its register or ledger; ended by commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from oncelog.client.blocking import Client
from oncelog.client.blocking.transaction_admin import open_transactions
from oncelog.spark.session.errors import SinkError
from oncelog.spark.sink import epoch_commit, fault_points, ledger, task_writer
from oncelog.spark.sink.options import SinkOptions, parse_sink_options
from oncelog.spark.sink.two_phase import protocol
from oncelog.spark.sink.two_phase.cluster_operations import ClusterOperations
from oncelog.spark.sink.two_phase.lingering import lingering_transactions, query_id_of
from oncelog.spark.sink.two_phase.operations import End, Operation
from oncelog.spark.sink.two_phase.register import Attempt, Listed
from oncelog.testing import Broker
from tests.interop.cli.conftest import Run
from tests.interop.cli.conftest import run_at as run_at  # a fixture
from tests.spark.sink.queries import TWO_PHASE, committed_values

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(TWO_PHASE) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as opened:
        yield opened


@pytest.fixture
def options(broker: Broker, request: pytest.FixtureRequest) -> SinkOptions:
    topic = request.node.originalname
    return parse_sink_options({"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic})


@pytest.fixture
def end(broker: Broker, run_at: Callable[[str], Run]) -> Callable[..., tuple[int, list[dict[str, Any]]]]:
    """Runs ``txn commit`` or ``txn abort`` for a checkpoint; the exit code and the rows."""
    run = run_at(broker.bootstrap_servers)

    def ended(verb: str, checkpoint: Path) -> tuple[int, list[dict[str, Any]]]:
        ran = run("txn", verb, "--from-spark-checkpoint", str(checkpoint), "--yes", "--json")
        return ran.code, json.loads(ran.out)

    return ended


def checkpoint_of(query: str, directory: Path) -> Path:
    (directory / "metadata").write_text(json.dumps({"id": query}))
    return directory


def write(options: SinkOptions, attempt: Attempt, partition: str, *values: str) -> Listed:
    place = task_writer.TaskPlace(partition, 0)
    listed = task_writer.write_two_phase(options, attempt, place, [pa.record_batch({"value": list(values)})]).listed
    assert listed is not None
    return listed


class Killed(Exception):
    """The driver dies here."""


def decide(options: SinkOptions, attempt: Attempt, *listed: Listed, ends: int = 0) -> None:
    """Decide the epoch, carry out ``ends`` of its commits, and die."""
    left = ends

    def die(operation: Operation) -> None:
        nonlocal left
        if isinstance(operation, End):
            left -= 1
            if left < 0:
                raise Killed

    with (
        Client(options.bootstrap_servers) as client,
        ClusterOperations(client, attempt.query) as cluster,
        suppress(Killed),
    ):
        cluster.run(protocol.commit(attempt, listed), die)


def committed(options: SinkOptions) -> list[bytes]:
    assert options.topic is not None
    return committed_values(options.bootstrap_servers, options.topic)


def test_a_decided_epoch_is_committed_and_the_rest_aborted(
    options: SinkOptions, client: Client, end: Any, tmp_path: Path
) -> None:
    attempt = Attempt("decided", 0, "run")
    listed = [write(options, attempt, str(partition), f"v{partition}") for partition in range(3)]
    write(options, attempt, "3", "of a twin that lost")
    decide(options, attempt, *listed, ends=1)
    checkpoint = checkpoint_of("decided", tmp_path)

    code, rows = end("commit", checkpoint)
    assert (code, [row["outcome"] for row in rows]) == (0, ["committed", "committed", "nothing"])
    assert {row["why"] for row in rows} == {"epoch 0 is decided and lists it"}
    code, rows = end("abort", checkpoint)
    assert (code, [(row["outcome"], row["why"]) for row in rows]) == (
        0,
        [("aborted", "the decision about epoch 0 does not list it")],
    )
    assert open_transactions(client, protocol.task_prefix("decided")) == []
    assert sorted(committed(options)) == [b"v0", b"v1", b"v2"]
    # The query starts again, and finds its decision carried out.
    epoch_commit.commit(options, Attempt("decided", 0, "again"), ())
    following = Attempt("decided", 1, "again")
    epoch_commit.commit(options, following, (write(options, following, "0", "next"),))
    assert sorted(committed(options)) == [b"next", b"v0", b"v1", b"v2"]


def test_an_undecided_epoch_is_aborted_and_written_again(
    options: SinkOptions, client: Client, end: Any, tmp_path: Path
) -> None:
    write(options, Attempt("undecided", 0, "run"), "0", "a")
    checkpoint = checkpoint_of("undecided", tmp_path)
    assert end("commit", checkpoint) == (0, [])
    code, (row,) = end("abort", checkpoint)
    assert (code, row["outcome"], row["why"]) == (
        0,
        "aborted",
        "epoch 0 is not decided: the query writes it again",
    )
    again = Attempt("undecided", 0, "again")
    epoch_commit.commit(options, again, (write(options, again, "0", "a"),))
    assert committed(options) == [b"a"]


def test_a_transaction_of_the_ledger_is_aborted(
    options: SinkOptions, client: Client, end: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(directory: str | None, point: str) -> None:
        if point == "ledger-before-commit":
            raise Killed

    monkeypatch.setattr(ledger, "reach", die)
    # A dead process closes no producer.
    monkeypatch.setattr(ledger.TransactionalBodyProducer, "__exit__", lambda self, *error: None)
    attempt = Attempt("ledger", 0, "run")
    with suppress(Killed):
        ledger.write_with_ledger(options, attempt, "0", [pa.record_batch({"value": ["a"]})])
    (stored,) = open_transactions(client, protocol.task_prefix("ledger"))
    assert stored.transactional_id == protocol.ticket_id("ledger", "0")
    code, (row,) = end("abort", checkpoint_of("ledger", tmp_path))
    assert (code, row["why"]) == (0, "the ledger does not have it: the query writes its rows again")
    monkeypatch.setattr(ledger, "reach", fault_points.reach)
    assert ledger.write_with_ledger(options, attempt, "0", [pa.record_batch({"value": ["a"]})]) == 1
    assert committed(options) == [b"a"]


def test_without_a_register_nothing_is_ended(options: SinkOptions, client: Client, tmp_path: Path) -> None:
    write(options, Attempt("lost", 0, "run"), "0", "a")
    with ClusterOperations(client, "lost") as cluster:
        cluster.answer(protocol.Fence())
        cluster.forget()
    with pytest.raises(SinkError, match="no entry in __oncelog_sink, so its decision is not known"):
        lingering_transactions(client, checkpoint_of("lost", tmp_path))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read"),
        (b"not json", "is not a JSON object with the query's id"),
        (b'{"id": 7}', "an id that no query has"),
        (b'{"id": "a/b"}', "an id that no query has: 'a/b'"),
        (b'{"id": "' + b"x" * 300 + b'"}', "an id that no query has"),
        (b" " * 70_000, "more than 65536 bytes"),
        (b"[" * 50_000, "is not a JSON object with the query's id"),
    ],
)
def test_metadata_of_no_query(content: bytes | None, problem: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "metadata").write_bytes(content)
    with pytest.raises(SinkError, match=problem):
        query_id_of(tmp_path)

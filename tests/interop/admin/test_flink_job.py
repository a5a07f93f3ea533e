"""A real Flink job dies between its checkpoint and its commit; its data is saved, and it goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.admin.transactions import describe_transaction
from oncelog.client.blocking import Client
from tests.interop.admin.lab import at
from tests.interop.admin.test_stored_ends import committed, make_topic
from tests.interop.cli.conftest import Run
from tests.interop.cli.conftest import run_at as run_at  # a fixture
from tests.peers.flink import HALTED, run_saved_job

pytestmark = [pytest.mark.slow, pytest.mark.peer("flink")]
RECORDS = 60


@pytest.fixture
def run(servers: str, run_at: Callable[[str], Run]) -> Run:
    return run_at(servers)


@pytest.mark.parametrize(("strategy", "inline_bytes"), [("INCREMENTING", 20_480), ("POOLING", 0)])
def test_the_data_of_a_job_that_died_is_saved(
    run: Run, client: Client, servers: str, tmp_path: Path, strategy: str, inline_bytes: int
) -> None:
    topic = f"flink-{strategy.lower()}"
    make_topic(client, topic)
    code, log = run_saved_job(
        servers, topic, tmp_path, records=RECORDS, halt_at=2, inline_bytes=inline_bytes, strategy=strategy
    )
    assert code == HALTED, log
    checkpoint = sorted(tmp_path.glob("*/chk-*/_metadata"), key=lambda path: int(path.parent.name[4:]))[-1].parent
    before = committed(client, at(topic))
    options = ("--from-flink-checkpoint", str(checkpoint), "--json")

    planned = run("txn", "commit", *options, "--dry-run")
    (plan,) = json.loads(planned.out)
    assert (planned.code, plan["state"], plan["action"]) == (0, "open", "end"), planned
    assert plan["why"] == f"checkpoint {checkpoint.name[4:]} counts on it"
    assert plan["records"] > 0
    done = run("txn", "commit", *options, "--yes")
    assert (done.code, json.loads(done.out)[0]["outcome"]) == (0, "committed"), done
    saved = committed(client, at(topic))
    assert len(saved) == len(before) + plan["records"]
    assert saved == [b"v%d" % number for number in range(len(saved))]
    again = run("txn", "commit", *options, "--yes")
    assert (again.code, json.loads(again.out)[0]["state"]) == (0, "committed")

    lingering = run("txn", "abort", *options, "--yes")
    aborted = json.loads(lingering.out)
    assert (lingering.code, [entry["outcome"] for entry in aborted]) == (0, ["aborted"] * len(aborted)), lingering
    assert plan["transactional_id"] not in {entry["transactional_id"] for entry in aborted}
    assert all(describe_transaction(client, entry["transactional_id"]).state == "CompleteAbort" for entry in aborted)

    code, log = run_saved_job(servers, topic, tmp_path, records=RECORDS, strategy=strategy, restored=checkpoint)
    assert code == 0, log
    assert "fenced" not in log, "the job finds its commit carried out"
    assert committed(client, at(topic)) == [b"v%d" % number for number in range(RECORDS)]

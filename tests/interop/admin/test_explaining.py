"""The transaction behind which a group stands still, told by the group; and ends that a coordinator has to write."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.admin.transactions.abort_marker import abort, find_one
from oncelog.admin.transactions.blocked_groups import pending_offsets
from oncelog.admin.transactions.cluster_scan import scan
from oncelog.admin.transactions.explanations import Explanation, explain_group, explain_topic
from oncelog.admin.transactions.termination import force_terminate
from oncelog.base.transaction_verdicts import Verdict
from oncelog.client.blocking import Client
from oncelog.client.blocking.transactions import GroupMetadata, TransactionalProducer, TransactionSettings
from oncelog.client.machine.offsets import Committed
from oncelog.client.programs.group import commit_offsets
from oncelog.testing import Broker
from tests.interop.admin.conftest import FAST
from tests.interop.admin.lab import WITHOUT_VERIFICATION, ByHand, at
from tests.interop.admin.test_hanging import committed

pytestmark = pytest.mark.slow


@pytest.fixture
def client() -> Iterator[Client]:
    config = {**WITHOUT_VERIFICATION, "node.id": "1", "transaction.two.phase.commit.enable": "true"}
    with Broker(config) as broker, Client(broker.bootstrap_servers, config=FAST) as opened:
        create_topic(opened, NewTopic("t", partitions=3))
        yield opened


def text(told: Explanation) -> str:
    return " ".join(sentence for chain in told.chains for sentence in chain.sentences)


def test_positions_that_no_transaction_explains(client: Client) -> None:
    producer = ByHand(client, "x")
    producer.begin(at("t", 0), at("t", 1))
    producer.write(at("t", 0))
    producer.end()
    producer.begin(at("t", 1))
    offsets = {at("t", 0): Committed(0), at("t", 1): Committed(3), at("t", 2): Committed(0)}
    commit_offsets(client, "g", offsets)
    told = text(explain_group(client, "g"))
    assert "In t-0 it is at offset 0 and can read on up to 3: that it does not is its own doing" in told
    assert "In t-1 it is at offset 3, beyond the last stable offset 2: it reads uncommitted records" in told
    assert "In t-2 it is at the end, offset 0; there is nothing to read." in told
    assert "No transaction holds it." in told
    assert "committed readers can read it to the end" in text(explain_topic(client, "t", 0))


def test_a_marker_alone_is_nothing_to_read(client: Client) -> None:
    producer = ByHand(client, "x")
    producer.begin(at("t"))
    producer.end()
    producer.begin(at("t"))
    commit_offsets(client, "g", {at("t"): Committed(1)})
    told = explain_group(client, "g")
    assert "it is at offset 1, and there is nothing to read before offset 2" in text(told)
    assert told.chains[-1].verdict == "live"
    assert (told.chains[-1].clears_at_ms or 0) > 0


def test_offsets_that_are_pending_in_a_transaction(client: Client) -> None:
    commit_offsets(client, "g", {at("t"): Committed(0)})
    producer = TransactionalProducer(client, TransactionSettings("mover"))
    producer.initialize()
    producer.begin()
    producer.send_offsets({at("t"): Committed(5)}, GroupMetadata("g"))
    told = explain_group(client, "g")
    assert "Its offsets of t-0 are pending in a transaction that has not ended" in text(told)
    assert (told.chains[-1].about, told.chains[-1].verdict) == ("__consumer_offsets-0", "live")
    assert told.chains[-1].commands == ["oncelog txn force-terminate mover"]
    producer.abort()
    producer.close()
    assert "pending" not in text(explain_group(client, "g"))


def test_a_groups_first_offsets_may_be_pending_too(client: Client) -> None:
    producer = TransactionalProducer(client, TransactionSettings("copier"))
    producer.initialize()
    producer.begin()
    producer.send_offsets({at("t"): Committed(5)}, GroupMetadata("beginners"))
    told = explain_group(client, "beginners")
    assert "its first commit may be in that" in text(told)
    assert (told.chains[-1].about, told.chains[-1].verdict) == ("__consumer_offsets-0", "live")
    producer.abort()
    producer.close()
    assert pending_offsets(client, "beginners", [at("t")]) == set()


def test_many_behind_one_another(client: Client) -> None:
    first, second = ByHand(client, "first"), ByHand(client, "second")
    first.begin(at("t"))
    first.end()
    first.write(at("t"))
    second.begin(at("t"))
    (chain,) = explain_topic(client, "t", options=" -b x:1", min_age_ms=0).chains
    assert (chain.verdict, chain.commands) == (
        "hanging",
        ["oncelog txn abort --topic t --partition 0 --start-offset 2 -b x:1"],
    )
    assert any("1 more transaction is open behind it, 0 of them hanging" in sentence for sentence in chain.sentences)
    result = abort(client, find_one(client, at("t"), 2), min_age_ms=0)
    assert (result.error, result.stable_before, result.stable_after, result.next_start) == (None, 2, 3, 3)


def test_what_is_prepared_is_left_to_whoever_prepared_it_until_forced(client: Client) -> None:
    producer = TransactionalProducer(client, TransactionSettings("two", two_phase=True))
    producer.initialize()
    producer.begin()
    producer.send("t", b"prepared", partition=0)
    producer.prepare()
    producer.close()
    kept = TransactionalProducer(client, TransactionSettings("two", two_phase=True))
    assert kept.initialize(keep_prepared=True) is not None
    kept.close()
    (one,) = scan(client, min_age_ms=0).transactions
    assert one.verdict is Verdict.TWO_PHASE, "kept by a newer instance, and still not hanging"
    refused = abort(client, one, force=True, min_age_ms=0)
    assert "force-terminate two" in (refused.error or "")
    lines: list[object] = []
    done = force_terminate(client, "two", audit=lambda entry: lines.append(entry["outcome"]))
    assert (done.done, done.before.state, done.after.partitions) == (True, "Ongoing", frozenset())
    assert done.bounds[at("t")].held == 0
    assert lines == ["sending", "terminated"]
    assert committed(client, at("t")) == []
    assert scan(client, min_age_ms=0).transactions == []

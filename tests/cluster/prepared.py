"""Two-phase commit (KIP-939) whose brokers fail: `python -m tests.cluster.prepared --seed 7 --rounds 40`.

A round writes one record in a transaction, lets the producer die, takes the transaction over by InitProducerId that
keeps it, perhaps again, and ends it as the seed decides. Between any two of these requests the leader of the
coordinator, of the partition or of both is killed, stopped or frozen; some of them while the request is under way. The
transaction kept has to be the one that was left, and in the end the records that were committed are there, once and in
order, and no other.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.errors import ErrorCode
from oncelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.cluster.brokers import PROPERTIES, TRANSACTIONS, Cluster
from tests.cluster.committed import Servers, read_committed
from tests.cluster.strikes import KINDS, draw_away_s, drilled, strike
from tests.peers.clients.sweep.wire import Wire, batch

TOPIC: Final = "prepared"
NAME: Final = "two-phase"
_AGAIN: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_PATIENCE_S: Final = 60


class Identity(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


class Wrong(Exception):
    """The cluster has answered what it must not."""


class Application:
    """The requests of one transactional id, each until its answer is known."""

    def __init__(self, cluster: Cluster, strike: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._strike = strike

    def coordinator(self) -> int:
        """The broker that coordinates the id; −1: none."""
        return self._cluster.coordinator(NAME, TRANSACTIONS)

    def initialize(self, *, keeps: bool) -> tuple[Identity, Identity]:
        """The identity to go on with, and that of the transaction kept."""
        request = InitProducerIdRequest(
            transactional_id=NAME, transaction_timeout_ms=2**31 - 1, enable2_pc=True, keep_prepared_txn=keeps
        )
        answer = self._until_known(self.coordinator, request, 6)
        return (
            Identity(answer.producer_id, answer.producer_epoch),
            Identity(answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch),
        )

    def write(self, identity: Identity, value: bytes) -> None:
        """One record in a transaction that stays open."""
        adding = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=NAME,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
        )
        self._until_known(self.coordinator, adding, 3, _adding_error)
        self._strike("added")
        who = {"producer_id": identity.producer_id, "producer_epoch": identity.epoch, "base_sequence": 0}
        data = PartitionProduceData(index=0, records=batch(value, transactional=True, **who))
        writing = ProduceRequest(
            acks=-1,
            timeout_ms=10_000,
            transactional_id=NAME,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
        )
        self._until_known(lambda: self._cluster.leader(TOPIC, 0), writing, 11, _writing_error)

    def end(self, identity: Identity, *, committed: bool) -> Identity:
        """The identity to go on with."""
        request = EndTxnRequest(
            transactional_id=NAME, producer_id=identity.producer_id, producer_epoch=identity.epoch, committed=committed
        )
        answer = self._until_known(self.coordinator, request, 5)
        return Identity(answer.producer_id, answer.producer_epoch)

    def _until_known(
        self,
        whom: Callable[[], int],
        request: Any,
        version: int,
        error_of: Callable[[Any], int] = lambda answer: int(answer.error_code),
    ) -> Any:
        deadline = time.monotonic() + _PATIENCE_S
        last: object = None
        while time.monotonic() < deadline:
            broker_id = whom()
            if broker_id in self._cluster.ids:
                try:
                    with Wire(self._cluster.address(broker_id)) as wire:
                        answer = wire.call(request, version)
                except OSError as failure:
                    answer, last = None, failure
                if answer is not None:
                    last = code = ErrorCode(error_of(answer))
                    if code is ErrorCode.NONE:
                        return answer
                    if code not in _AGAIN:
                        raise Wrong(f"{type(request).__name__}: {code.name}")
            time.sleep(0.02)
        raise Wrong(f"{type(request).__name__}: no answer in {_PATIENCE_S} s; last {last!r}")


def _adding_error(answer: Any) -> int:
    return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


def _writing_error(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


class Fire:
    """Strikes at a point with a seed's chance, and heals in the background."""

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self._cluster = cluster
        self._chance = chance
        self._healing: threading.Thread | None = None
        self.struck: list[str] = []
        self.coordinator: Callable[[], int] = lambda: -1

    def strike(self, point: str) -> None:
        """Perhaps; waits until what was struck before is healed."""
        if self._chance.random() < 0.5:
            return
        self.heal()
        victims = self._chance.choice((("coordinator",), ("data",), ("coordinator", "data")))
        brokers = {
            self.coordinator() if victim == "coordinator" else self._cluster.leader(TOPIC, 0) for victim in victims
        }
        doomed = sorted(brokers & set(self._cluster.ids))
        kind = self._chance.choice(KINDS)
        delay_s = self._chance.choice((0.0, 0.0, 0.001, 0.005, 0.02))
        away_s = draw_away_s(self._chance, kind, (0.0, 0.5))
        self.struck.append(f"{kind} {'+'.join(victims)} {doomed} {point}+{delay_s * 1000:g}")
        self._healing = threading.Thread(target=self._do, args=(kind, doomed, delay_s, away_s))
        self._healing.start()
        if not delay_s and kind != "stop":
            time.sleep(0.01)

    def heal(self) -> None:
        """Wait until all brokers run."""
        if self._healing is not None:
            self._healing.join()
            self._healing = None
            self._cluster.wait_healthy()

    def _do(self, kind: str, brokers: list[int], delay_s: float, away_s: float) -> None:
        time.sleep(delay_s)
        strike(self._cluster, kind, brokers, away_s)


def run(seed: int, rounds: int, directory: Path) -> list[str]:
    """One drill in an empty directory; what is wrong."""
    chance = random.Random(seed)
    properties = {**PROPERTIES, "transaction.two.phase.commit.enable": "true"}
    with Cluster(directory / "brokers", base=properties) as cluster:
        cluster.ask(lambda client: create_topic(client, NewTopic(TOPIC, 1)))
        fire = Fire(cluster, chance)
        application = Application(cluster, fire.strike)
        fire.coordinator = application.coordinator
        committed: list[int] = []
        for number in range(rounds):
            fire.struck.clear()
            try:
                if _round(application, fire, chance, number):
                    committed.append(number)
            except Wrong as wrong:
                return [f"round {number}: {wrong}; {fire.struck}"]
            finally:
                fire.heal()
            print(f"  {number:3} {'; '.join(fire.struck)}", flush=True)
        result = read_committed(Servers(cluster.bootstrap_servers), TOPIC, 0)
        return [] if result == committed else [f"committed {committed}, there is {result}"]


def _round(application: Application, fire: Fire, chance: random.Random, number: int) -> bool:
    """True if its record was committed."""
    first, _ = application.initialize(keeps=False)
    application.write(first, str(number).encode())
    latest = first
    for _ in range(chance.randint(1, 3)):
        fire.strike("written")
        latest, ongoing = application.initialize(keeps=True)
        if ongoing != first:
            raise Wrong(f"kept {ongoing}, and {first} was left")
    fire.strike("kept")
    commits = chance.random() < 0.6
    following = application.end(latest, committed=commits)
    if chance.random() < 0.5:
        fire.strike("ended")
        again = application.end(latest, committed=commits)
        if again != following:
            raise Wrong(f"EndTxn answers {following}, asked again {again}")
    return commits


def main() -> int:
    """Run the rounds of a seed; 1 when something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="what is struck, when, and how")
    parser.add_argument("--rounds", type=int, default=20, help="transactions (default 20)")
    given = parser.parse_args()
    return drilled("prepared", given.seed, lambda directory: run(given.seed, given.rounds, directory))


if __name__ == "__main__":
    sys.exit(main())

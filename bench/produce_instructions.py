"""Instructions of a Produce request in the node, from its frame to the bytes of its answer; with ``--fetch`` those of
Fetch requests, with ``--end-txn`` those of a transaction of one partition. Counts, not times: two runs of the same tree
differ by less than a hundredth.

One node with its files in memory and no sockets answers the same requests N and 2 N times under Valgrind, and the
difference is divided by N: start, imports and caches count in neither. Records are 100 bytes, one a batch.

    python -m bench.produce_instructions            # the tree in which it runs; needs valgrind
    python -m bench.produce_instructions --calls    # calls of Python functions instead, in a second
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Final

from tests.scenario.node.driver import Driver, Peer
from tests.scenario.node.requests import batch, create_topic, fetch, produce

from oncelog.node.kernel.events import RequestReceived
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.wire.header import RequestHeader, encode_request
from oncelog.wire.message import Message
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

REQUESTS: Final = 200
CASES: Final = {"1 partition": (1, -1), "1 partition, acks=1": (1, 1), "10 partitions": (10, -1)}
FETCH_BATCHES: Final = {"fetch of 1 batch": 1, "fetch of 100 batches": 100}
TRANSACTION: Final = "transaction of 1 partition"
_FETCH_VERSION: Final = 11
_VERSION: Final = 12
_END_VERSION: Final = 5


def produce_case(driver: Driver, peer: Peer, partitions: int, acks: int) -> Callable[[], None]:
    """One Produce request without a producer id, of one batch a partition."""
    batch = bytes(build_batch([Record(0, driver.now_ms, None, bytes(100), ())]))
    data = [PartitionProduceData(index=index, records=batch) for index in range(partitions)]
    topics = [TopicProduceData(name="t", partition_data=data)]
    return _sender(driver, peer, ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics), _VERSION)


def fetch_case(driver: Driver, peer: Peer, batches: int) -> Callable[[], None]:
    """One Fetch request outside a session, answered with so many batches of 10 KB."""
    for _ in range(batches):
        response = peer.ask(produce("t", batch(driver, *[bytes(100)] * 100)), _VERSION)
        assert response.responses[0].partition_responses[0].error_code == 0
    return _sender(driver, peer, fetch("t", 0), _FETCH_VERSION)


def transaction_case(driver: Driver, peer: Peer) -> Callable[[], None]:
    """A Produce request that begins a transaction (KIP-890), and the EndTxn that commits it, with its marker."""
    answer = peer.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 5)
    identity = [answer.producer_id, answer.producer_epoch]

    def send() -> None:
        record = Record(0, driver.now_ms, None, bytes(100), ())
        batch = build_batch(
            [record], producer_id=identity[0], producer_epoch=identity[1], base_sequence=0, transactional=True
        )
        topics = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=bytes(batch))])]
        produced = peer.ask(ProduceRequest(transactional_id="x", acks=-1, timeout_ms=1000, topic_data=topics), _VERSION)
        assert produced.responses[0].partition_responses[0].error_code == 0
        ended = peer.ask(
            EndTxnRequest(transactional_id="x", producer_id=identity[0], producer_epoch=identity[1], committed=True),
            _END_VERSION,
        )
        assert ended.error_code == 0
        identity[:] = ended.producer_id, ended.producer_epoch

    return send


def _sender(driver: Driver, peer: Peer, request: Message, version: int) -> Callable[[], None]:
    header = RequestHeader(request.API_KEY, version, 1, "bench")
    frame = b"".join(bytes(chunk) for chunk in encode_request(header, request))[4:]

    def send() -> None:
        driver.node.handle(RequestReceived(peer.id, memoryview(bytearray(frame))), driver.now_ms)

    return send


def _case(name: str) -> Callable[[], None]:
    driver = Driver({"log.sync.policy": "none"})
    peer = driver.connect()
    create_topic(peer, "t", 10)
    if name in FETCH_BATCHES:
        return fetch_case(driver, peer, FETCH_BATCHES[name])
    return transaction_case(driver, peer) if name == TRANSACTION else produce_case(driver, peer, *CASES[name])


def run(name: str, requests: int) -> None:
    """Answer so many requests."""
    send = _case(name)
    for _ in range(requests):
        send()


def calls(name: str) -> float:
    """Python functions called for one request."""
    send = _case(name)
    for _ in range(10):
        send()
    count = 0

    def called(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(called)
    for _ in range(REQUESTS):
        send()
    sys.setprofile(None)
    return count / REQUESTS


def instructions(name: str) -> float:
    """Instructions of one request, as Valgrind counts them."""
    few, many = (_instructions_of_process(name, times * REQUESTS) for times in (1, 2))
    return (many - few) / REQUESTS


def _instructions_of_process(name: str, requests: int) -> int:
    valgrind = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
    ours = (sys.executable, "-m", "bench.produce_instructions", "--run", name, "--requests", str(requests))
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    ended = subprocess.run([*valgrind, *ours], capture_output=True, text=True, check=False, env=environment)
    counted = re.search(r"Collected : (\d+)", ended.stderr)
    if ended.returncode or counted is None:
        raise SystemExit(ended.stderr)
    return int(counted[1])


def main() -> None:
    """Print one line a case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", action="store_true", help="count calls of Python functions")
    parser.add_argument("--fetch", action="store_true", help="Fetch requests, too")
    parser.add_argument("--end-txn", action="store_true", help="a transaction, too")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--requests", type=int, default=REQUESTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run(options.run, options.requests)
        return
    for name in [*CASES, *(FETCH_BATCHES if options.fetch else []), *([TRANSACTION] if options.end_txn else [])]:
        figure = calls(name) if options.calls else instructions(name)
        print(f"{name}: {figure:,.0f} {'calls' if options.calls else 'instructions'}")


if __name__ == "__main__":
    main()

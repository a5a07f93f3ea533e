"""The time of a small transaction, by its parts: `python -m bench.timeline PEER…`, as root, on Linux.

Every packet on the loopback interface has the kernel's time; beside the caller's own clock that says when each request
leaves librdkafka, when it is answered, and when the next one leaves. So a transaction falls into what the broker takes
(from a request's packet to that of its answer, waking up included) and what the client takes in between. The packets
are fetched by a process that sleeps nearly all the time, so that it disturbs nobody.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import statistics
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.peers import FLOOR, KAFKA, ONCELOG, ONCELOG_SYNCED, Broker, create_topics, running
from bench.transactions import transactional_producer
from bench.workloads import percentile

_PEERS: Final = {"oncelog": ONCELOG, "oncelog-synced": ONCELOG_SYNCED, "kafka": KAFKA, "floor": FLOOR}
_WARM_UP: Final = {"kafka": 3000}
_PRODUCE, _ADD_PARTITIONS, _END_TXN = 0, 24, 26
_SO_RCVBUFFORCE, _SO_TIMESTAMPNS, _ETH_P_ALL, _OUTGOING, _TCP = 33, 35, 3, 4, 6
_TIME: Final = struct.Struct("qq")


class Packet(NamedTuple):
    """Bytes that left one side. ``api_key`` is −1 in answers; ``peer`` is the client's port."""

    at_ns: int
    api_key: int
    peer: int


def _packets(port: int, ready: Any, stop: Any, result: Any) -> None:
    """Note what is said to and by a port until told to stop."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL)) as tap:
        tap.bind(("lo", 0))
        tap.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 256 << 20)
        tap.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        tap.setblocking(False)
        ready.set()
        packets: list[Packet] = []
        while True:
            last = stop.wait(0.25)
            packets.extend(_waiting(tap, port))
            if last:
                result.send(packets)
                return


def _waiting(tap: socket.socket, port: int) -> Iterator[Packet]:
    while True:
        try:
            data, ancillary, _, address = tap.recvmsg(512, 256)
        except BlockingIOError:
            return
        tcp = 14 + (data[14] & 15) * 4
        if address[2] != _OUTGOING or data[23] != _TCP:
            continue  # each packet on loopback is seen twice
        source, destination = struct.unpack_from(">HH", data, tcp)
        payload = tcp + (data[tcp + 12] >> 4) * 4
        if port not in (source, destination) or struct.unpack_from(">H", data, 16)[0] + 14 <= payload:
            continue
        seconds, nanoseconds = _TIME.unpack_from(ancillary[0][2])
        requests = destination == port
        api_key = struct.unpack_from(">h", data, payload + 4)[0] if requests else -1
        yield Packet(seconds * 1_000_000_000 + nanoseconds, api_key, source if requests else destination)


def _transactions(producer: Any, topic: str, partitions: int, count: int) -> list[tuple[int, int, int]]:
    """When each began, was produced, was committed."""
    value, now = os.urandom(100), time.time_ns
    moments = []
    for _ in range(count):
        begins = now()
        producer.begin_transaction()
        for partition in range(partitions):
            producer.produce(topic, value, partition=partition)
        produced = now()
        producer.commit_transaction(60)
        moments.append((begins, produced, now()))
    return moments


def _parts(moments: tuple[int, int, int], packets: list[Packet]) -> dict[str, int]:
    """The parts of one transaction, in ns; packets are those of its time. Raises StopIteration where one lacks."""
    begins, produced, committed = moments

    def asked(api_key: int) -> Packet:
        return next(packet for packet in packets if packet.api_key == api_key)

    def answered(request: Packet) -> list[Packet]:
        return [p for p in packets if p.api_key < 0 and p.peer == request.peer and p.at_ns > request.at_ns]

    adding, producing, ending = asked(_ADD_PARTITIONS), asked(_PRODUCE), asked(_END_TXN)
    added, ended = next(iter(answered(adding))), next(iter(answered(ending)))
    acknowledged = answered(producing)[-1]
    return {
        "client: begin_transaction() and produce()": produced - begins,
        "client: until AddPartitionsToTxn leaves (its timer: 1 ms)": adding.at_ns - produced,
        "broker: AddPartitionsToTxn": added.at_ns - adding.at_ns,
        "client: until Produce leaves": producing.at_ns - added.at_ns,
        "broker: Produce, until the last is answered": acknowledged.at_ns - producing.at_ns,
        "client: until EndTxn leaves": ending.at_ns - acknowledged.at_ns,
        "broker: EndTxn": ended.at_ns - ending.at_ns,
        "client: until commit_transaction() returns": committed - ended.at_ns,
        "the whole": committed - begins,
    }


def measure(name: str, broker: Broker, partitions: int, count: int) -> list[dict[str, int]]:
    """The parts of each of ``count`` transactions."""
    (topic,) = create_topics(broker, 1, 10, f"timeline-{time.time_ns()}")
    producer = transactional_producer(broker, "timeline", **{"linger.ms": 0, "socket.nagle.disable": True})
    _transactions(producer, topic, partitions, _WARM_UP.get(name, 300))
    ready, stop = multiprocessing.Event(), multiprocessing.Event()
    result, told = multiprocessing.Pipe(duplex=False)
    port = int(broker.bootstrap_servers.split(":")[1])
    tap = multiprocessing.Process(target=_packets, args=(port, ready, stop, told), daemon=True)
    tap.start()
    ready.wait()
    moments = _transactions(producer, topic, partitions, count)
    stop.set()
    packets: list[Packet] = sorted(result.recv())
    tap.join()
    measured, at = [], 0
    for moment in moments:
        while at < len(packets) and packets[at].at_ns < moment[0]:
            at += 1
        end = at
        while end < len(packets) and packets[end].at_ns < moment[2]:
            end += 1
        try:
            measured.append(_parts(moment, packets[at:end]))
        except (StopIteration, IndexError):
            continue  # a packet was lost
    return measured


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.timeline", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("peers", nargs="+", choices=_PEERS)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--count", type=int, default=1500)
    args = parser.parse_args()
    for name in args.peers:
        with (
            tempfile.TemporaryDirectory(prefix="oncelog-bench-") as directory,
            running(_PEERS[name].broker(Path(directory))) as broker,
        ):
            measured = measure(name, broker, args.partitions, args.count)
        print(f"\n### {name}, {args.partitions} partition(s), {len(measured)} transactions, microseconds\n")
        print("| part | p50 | mean | p99 |\n|---|---:|---:|---:|")
        for part in measured[0]:
            values = sorted(item[part] / 1000 for item in measured)
            mean = statistics.mean(values)
            print(
                f"| {part} | {percentile(values, 0.5):,.0f} | {mean:,.0f} | {percentile(values, 0.99):,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

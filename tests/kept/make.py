"""Make the kept files of this tree's version: ``python -m tests.kept.make [--release 0.1]``.

The wheel is built from this tree, and its broker writes a data directory and a cluster of three. They are packed as a
clean stop leaves them; then copies are started once more, and what they serve is recorded. Ids and times of brokers
differ from run to run; contents, offsets and timestamps of records do not.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from oncelog.admin.topics import describe_topics
from oncelog.client.blocking import Client
from oncelog.client.machine.transaction_values import StoredTransaction
from tests.cluster.brokers import Cluster
from tests.kept.contents import MAKING, PROPERTIES, write
from tests.kept.releases import BROKER, CLUSTER, PROGRAM, READING, RELEASE, RELEASES, pack, program, unpack
from tests.kept.serving import served
from tests.packages.builds import ROOT, build
from tests.peers.oncelog_serve import OncelogServe
from tests.waiting import wait_until

_ROOMS: Final = (
    *("base", "records", "wire", "core", "storage", "coordination", "handlers", "node", "runtime", "client"),
    *("listening", "cli", "legacy/message_set", "legacy/requests"),
)
"""The rooms that ``oncelog serve`` loads. The others would double the size."""
CLUSTER_PROPERTIES: Final = {
    **PROPERTIES,
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "zookeeper.session.timeout.ms": "3000",
}
_VOLATILE: Final = ("broker.log",)


def pack_program(target: Path, scratch: Path) -> None:
    wheel = build(ROOT, scratch / "wheel").wheel
    with zipfile.ZipFile(wheel) as built:
        built.extractall(scratch / "program")
    rooms = tuple(f"oncelog/{room}/" for room in _ROOMS)
    names = [name for name in built.namelist() if name.startswith(rooms) or name.count("/") == 1]
    packed = [name for name in names if name.startswith("oncelog/") or name.endswith("METADATA")]
    pack(target / PROGRAM, scratch / "program", [*packed, "oncelog/legacy/__init__.py"])


def make_broker(target: Path, scratch: Path, command: Sequence[str]) -> StoredTransaction:
    broker = OncelogServe(scratch / "broker", properties={**PROPERTIES, **MAKING}, command=command)
    with broker, Client(broker.bootstrap_servers) as client:
        stored = write(client, replicas=1)
        _stop(broker)
    _pack_directory(target / BROKER, scratch / "broker")
    return stored


def make_cluster(target: Path, scratch: Path, command: Sequence[str]) -> StoredTransaction:
    directory = scratch / "cluster"
    commands = dict.fromkeys((1, 2, 3), command)
    with Cluster(directory, properties=MAKING, base=CLUSTER_PROPERTIES, commands=commands) as cluster:
        with Client(cluster.bootstrap_servers) as client:
            stored = write(client, replicas=3)
            wait_until(lambda: _all_in_sync(client), "all replicas in sync")
            wait_until(lambda: _all_compacted(cluster), "the compaction of every replica")
        for broker_id in cluster.ids:
            if code := cluster.stop(broker_id):
                raise RuntimeError(f"exit code {code} of broker {broker_id}:\n{cluster.log(broker_id)[-2000:]}")
    _pack_directory(target / CLUSTER, directory)
    return stored


def _all_in_sync(client: Client) -> bool:
    described = describe_topics(client, offsets=False)
    return all(len(row.isr) == len(row.replicas) for topic in described for row in topic.partitions)


def _all_compacted(cluster: Cluster) -> bool:
    """The compacted part of each replica is one segment; the other one is active."""
    directories = [cluster.data_directory(broker_id) / "compacted-0" for broker_id in cluster.ids]
    return all(len(list(directory.glob("*.log"))) == 2 for directory in directories)


def _stop(broker: OncelogServe) -> None:
    if code := broker.stop():
        raise RuntimeError(f"exit code {code}:\n{(broker.directory / 'broker.log').read_text()[-2000:]}")


def _pack_directory(archive: Path, directory: Path) -> None:
    names = (path for path in directory.rglob("*") if path.is_file() and path.name not in _VOLATILE)
    pack(archive, directory, [str(path.relative_to(directory)) for path in names])


def record(scratch: Path, command: Sequence[str], release: str) -> dict[str, Any]:
    """The answers of brokers on copies, once the broker has aborted the transaction that was open."""
    readings: dict[str, Any] = {}
    copy = unpack(BROKER, scratch / "copy", release)
    with (
        OncelogServe(copy, properties=PROPERTIES, command=command) as broker,
        Client(broker.bootstrap_servers) as client,
    ):
        readings[BROKER] = served(client)
    copies = unpack(CLUSTER, scratch / "copies", release)
    commands = dict.fromkeys((1, 2, 3), command)
    with (
        Cluster(copies, base=CLUSTER_PROPERTIES, commands=commands) as cluster,
        Client(cluster.bootstrap_servers) as client,
    ):
        readings[CLUSTER] = served(client)
    return readings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default=RELEASE, help=f"the folder to write (default {RELEASE})")
    release = parser.parse_args().release
    target = RELEASES / release
    target.mkdir(exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="oncelog-kept-"))
    try:
        pack_program(target, scratch)
        command = program(release)
        stored = {BROKER: make_broker(target, scratch, command), CLUSTER: make_cluster(target, scratch, command)}
        readings = record(scratch, command, release)
        for name, transaction in stored.items():
            readings[name]["prepared"] = str(transaction)
        text = json.dumps(readings, indent=1, sort_keys=True, ensure_ascii=False)
        (target / READING).write_text(f"{text}\n", encoding="utf-8")
    finally:
        shutil.rmtree(scratch)
    for path in sorted(target.iterdir()):
        print(f"{path.stat().st_size:9,} {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

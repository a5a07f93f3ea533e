"""This version starts on the files of earlier ones, serves them, goes on, and goes back; damage ends as documented."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from oncelog.admin.topics import list_topics
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client, Committed, Producer, ShareConsumer
from oncelog.client.blocking.transaction_admin import end_transaction
from oncelog.client.errors import ClientError
from oncelog.client.machine.transaction_values import StoredTransaction
from oncelog.client.programs.group import commit_offsets
from oncelog.registry.topic_records import TOPIC
from oncelog.runtime.data.disk_files import DiskFiles
from oncelog.storage.log_config import LogConfig
from oncelog.storage.log_directory import LogDirectory
from tests.cluster.brokers import Cluster
from tests.cluster.replicas import differing_replicas
from tests.kept.contents import EXPLICIT, JOBS, PROPERTIES, WORKERS
from tests.kept.findings import findings_in
from tests.kept.make import CLUSTER_PROPERTIES
from tests.kept.releases import BROKER, CLUSTER, RELEASE, program, reading, unpack
from tests.kept.schemas import register_schema
from tests.kept.serving import served
from tests.peers.oncelog_serve import OncelogServe

MARKER: Final = ".kafka_cleanshutdown"
UNCLEAN: Final = "after a crash"
COMPACTED: Final = "compacted"
"""Replicas compact at different times, and keep tombstones from then on."""
_TORN_BYTES: Final = 70
_SEALED: Final = "plain-0/00000000000000000004.log"


@contextmanager
def serving(directory: Path, release: str | None = None) -> Iterator[Client]:
    """A client of a broker, of this tree or of a release, that is stopped in the end."""
    command = None if release is None else program(release)
    with OncelogServe(directory, properties=PROPERTIES, command=command, forked=release is None) as broker:
        with Client(broker.bootstrap_servers) as client:
            yield client
        assert broker.stop() == 0, (directory / "broker.log").read_text()[-2000:]


@contextmanager
def serving_cluster(directory: Path, release: str | None = None) -> Iterator[Client]:
    commands = {} if release is None else {broker_id: program(release) for broker_id in (1, 2, 3)}
    with Cluster(directory, base=CLUSTER_PROPERTIES, commands=commands) as cluster:
        with Client(cluster.bootstrap_servers) as client:
            yield client
        assert [cluster.stop(broker_id) for broker_id in cluster.ids] == [0, 0, 0]


def expected(name: str) -> dict[str, Any]:
    recorded = reading(name)
    del recorded["prepared"]
    return recorded


def go_on(client: Client, text: bytes, prepared: str | None = None) -> dict[str, Any]:
    """Write to every topic, commit offsets, do a job, register a schema and end a prepared transaction; returns what is
    served then."""
    with Producer(client) as producer:
        for topic in list_topics(client, internal=False):
            if topic.name != TOPIC:
                producer.send(topic.name, text, key=text, partition=0, timestamp_ms=1_760_000_000_000)
    with ShareConsumer(client, WORKERS, [JOBS], settings=replace(EXPLICIT, max_records=1)) as consumer:
        while not (acquired := consumer.poll()):
            pass
        consumer.accept(acquired[0])
    register_schema(client, text.decode())
    commit_offsets(client, "classic", {TopicPartition(TopicName("zstd"), 0): Committed(3, metadata=text.decode())})
    if prepared is not None:
        assert end_transaction(client, StoredTransaction.parse(prepared), commit=True) == 0
    return served(client)


def test_the_logs_of_a_kept_directory_open(tmp_path: Path) -> None:
    """Without a process: what `make test` sees of a format that has changed."""
    directory = unpack(BROKER, tmp_path) / "data"
    files = DiskFiles(directory)
    opened = LogDirectory.open(files, config_of=lambda _: LogConfig(), now_ms=1_760_000_000_000)
    ends = {str(log.partition): [log.log_start_offset, log.log_end_offset] for log in opened.logs.values()}
    files.close()
    recorded = {name: [first, end] for name, (first, _, end) in expected(BROKER)["offsets"].items()}
    recorded["payments-0"][1] -= 1  # without the abort at its time-out
    assert {name: ends[name] for name in recorded} == recorded
    assert opened.was_clean
    assert not opened.lost()


CASES: Final = [
    pytest.param(BROKER, serving, ("data",), id="broker"),
    pytest.param(CLUSTER, serving_cluster, ("1/data", "2/data", "3/data"), id="cluster"),
]


@pytest.mark.integration
@pytest.mark.parametrize(("name", "serve", "data"), CASES)
def test_this_version_serves_goes_on_and_goes_back(
    name: str, serve: Callable[..., Any], data: tuple[str, ...], tmp_path: Path
) -> None:
    directory = unpack(name, tmp_path)
    directories = [directory / place for place in data]
    with serve(directory) as client:
        assert served(client) == expected(name)
        later = go_on(client, b"later", reading(name)["prepared"])
        assert later["transactions"]["prepared"][0] == "CompleteCommit"
    assert findings_in(*directories) == []
    with serve(directory, RELEASE) as client:
        assert served(client) == later
        back = go_on(client, b"back")
    assert findings_in(*directories) == []
    with serve(directory) as client:
        assert served(client) == back
    if name == CLUSTER:
        places = dict(enumerate(directories))
        topics = back["topics"].keys() - {COMPACTED}
        assert [line for topic in topics for line in differing_replicas(places, topic)] == []


def _remove(directory: Path, pattern: str) -> None:
    paths = [*directory.glob(pattern)]
    assert paths
    for path in paths:
        path.unlink()


def _tear(directory: Path) -> None:
    """A batch without its end."""
    log = max((directory / "zstd-0").glob("*.log"))
    data = log.read_bytes()
    log.write_bytes(data + data[:_TORN_BYTES])


HARMLESS: Final[dict[str, Callable[[Path], None]]] = {
    "torn segment": _tear,
    "indexes": lambda directory: _remove(directory, "*-*/*index"),
    "snapshots": lambda directory: _remove(directory, "*-*/*.snapshot"),
    "recovery points": lambda directory: _remove(directory, "recovery-point-offset-checkpoint"),
    "high watermarks": lambda directory: _remove(directory, "replication-offset-checkpoint"),
    "cleaned offsets": lambda directory: _remove(directory, "cleaner-offset-checkpoint"),
    "leader epochs": lambda directory: _remove(directory, "*-*/leader-epoch-checkpoint"),
    "topic ids": lambda directory: _remove(directory, "*-*/partition.metadata"),
    "owners": lambda directory: _remove(directory, "*-*/transactional-ids"),
}


@pytest.mark.integration
@pytest.mark.parametrize("clean", [True, False], ids=["clean", UNCLEAN])
@pytest.mark.parametrize("damage", HARMLESS)
def test_everything_is_served_after_damage_that_segments_make_up_for(damage: str, clean: bool, tmp_path: Path) -> None:
    data = unpack(BROKER, tmp_path) / "data"
    HARMLESS[damage](data)
    if not clean:
        (data / MARKER).unlink()
    with serving(tmp_path) as client:
        assert served(client) == expected(BROKER)
    findings = findings_in(data)
    if damage == "cleaned offsets":  # nothing else tells the gaps of compaction from losses
        findings = [line for line in findings if COMPACTED not in line or "offsets are missing" not in line]
    assert findings == []


@pytest.mark.integration
def test_deleted_records_within_a_segment_return_without_the_log_starts(tmp_path: Path) -> None:
    data = unpack(BROKER, tmp_path) / "data"
    (data / "log-start-offset-checkpoint").unlink()
    recorded = expected(BROKER)
    with serving(tmp_path) as client:
        result = served(client)
    assert result["offsets"].pop("trimmed-0")[0] < recorded["offsets"].pop("trimmed-0")[0]
    assert result["offsets"] == recorded["offsets"]
    assert set(result["records"]["read_committed"]) > set(recorded["records"]["read_committed"])
    assert findings_in(data) == []


@pytest.mark.integration
def test_a_flipped_byte_in_a_sealed_segment_is_named_and_the_segment_restored(tmp_path: Path) -> None:
    directory = unpack(BROKER, tmp_path / "damaged")
    log = directory / "data" / _SEALED
    data = bytearray(log.read_bytes())
    data[len(data) - 3] ^= 0x10
    log.write_bytes(data)
    with serving(directory) as client, pytest.raises(ClientError, match=r"plain-0 .* offset [45]\b"):
        served(client)
    assert any("plain-0/00000000000000000004.log" in line for line in findings_in(directory / "data"))
    shutil.copy2(unpack(BROKER, tmp_path / "kept") / "data" / _SEALED, log)
    with serving(directory) as client:
        assert served(client) == expected(BROKER)
    assert findings_in(directory / "data") == []


@pytest.mark.integration
def test_a_replica_that_lost_its_disk_is_copied_from_the_others(tmp_path: Path) -> None:
    directory = unpack(CLUSTER, tmp_path)
    shutil.rmtree(directory / "2" / "data")
    with serving_cluster(directory) as client:
        assert served(client) == expected(CLUSTER)
    places = {number: directory / str(number) / "data" for number in (1, 2, 3)}
    assert findings_in(*places.values()) == []
    for topic in expected(CLUSTER)["topics"].keys() - {COMPACTED, "trimmed"}:  # only what is readable is copied
        assert [*differing_replicas(places, topic)] == []

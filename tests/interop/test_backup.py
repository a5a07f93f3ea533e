"""Backups of running brokers under load: whole, of one moment, and never half there."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oncelog.cli.log.backup import making
from oncelog.cli.log.backup.manifest import MANIFEST, BackupError, Manifest
from oncelog.cli.log.backup.noted_files import BrokerFiles
from oncelog.cli.log.backup.restoring import problems_of
from oncelog.cli.log.backup.tree_file import TreeSnapshot
from tests.interop import backups
from tests.load import Load, broken, create_topic, read_topic
from tests.peers.oncelog_serve import OncelogServe

pytestmark = [pytest.mark.slow, pytest.mark.integration]
SEED = random.SystemRandom().randrange(1 << 32)
"""Printed by each drill."""


def test_backups_of_one_broker_at_random_moments(tmp_path: Path) -> None:
    assert backups.run(tmp_path, seed=SEED, rounds=4) == []


@pytest.mark.parametrize("replicas", [pytest.param(1, marks=pytest.mark.long), 3])
def test_backups_of_three_brokers_at_random_moments(replicas: int, tmp_path: Path) -> None:
    assert backups.run(tmp_path, seed=SEED, rounds=3, brokers=3, replicas=replicas) == []


@pytest.mark.long
def test_a_backup_of_several_moments_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def note_one_by_one(brokers: list[BrokerFiles], tree: TreeSnapshot) -> bool:
        for broker in brokers:
            broker.note()
            time.sleep(0.2)
        tree.pin()
        return True

    monkeypatch.setattr(making, "_note_held", note_one_by_one)
    monkeypatch.setattr(backups, "_ENDED_S", 10)
    assert backups.run(tmp_path, seed=SEED, rounds=3, brokers=3) != []


def test_a_killed_backup_leaves_no_backup_and_a_broker_that_works(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    broker = OncelogServe(tmp_path / "broker", properties={"log.segment.bytes": "1048576"}, forked=True).start()
    try:
        create_topic(broker.bootstrap_servers, "durable", 3)
        load = Load(broker.bootstrap_servers, "durable", "producer", 3)
        load.start()
        whole = 0
        for count in range(12):
            load.wait_for_more()
            whole += _killed(broker, tmp_path / f"backup-{count}", chance.uniform(0.2, 1.5))
        load.wait_for_more()
        load.stop()
        stored = read_topic(broker.bootstrap_servers, "durable", 3)
        for partition in range(3):
            assert [*broken(load.acknowledged[partition], stored[partition], stored[partition])] == []
        print(f"{whole} of 12 backups were whole before they were killed")
    finally:
        broker.kill()


def _killed(broker: OncelogServe, backup: Path, after_s: float) -> bool:
    """Kill a backup; True if it was whole by then. Fails if it is there and not whole."""
    command = [sys.executable, "-m", "oncelog", "log", "backup", str(broker.data_directory), "--to", str(backup)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            process.wait(after_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
    if backup.exists():
        assert [*problems_of(Manifest(backup), lambda done, total: None)] == []
        return True
    incomplete = backup.with_name(backup.name + ".incomplete")
    if incomplete.exists() and not (incomplete / MANIFEST).exists():
        with pytest.raises(BackupError, match="no whole backup"):
            Manifest(incomplete)
    return False

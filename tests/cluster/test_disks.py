"""Three brokers as processes, the disk of one of which fails, or is full: others lead, nothing acknowledged is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.cluster import disk_on_request
from tests.cluster.brokers import Cluster
from tests.cluster.test_processes import assert_nothing_was_lost, everybody_goes_on, start_loads
from tests.load import create_topic
from tests.peers.forked import MODULE
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]
TOPIC: Final = "orders"
COMMAND: Final = (*MODULE, disk_on_request.__name__)


def offline(cluster: Cluster) -> list[int]:
    """Brokers whose directory is offline, as kafka-log-dirs and ``oncelog cluster status`` are told."""
    status = cluster.status()
    return [] if status is None else [directory.broker_id for directory in status.offline_directories]


def test_a_broker_whose_disk_fails_ends_and_others_lead(tmp_path: Path) -> None:
    with Cluster(tmp_path, command=COMMAND) as cluster:
        loads = start_loads(cluster, 1)
        everybody_goes_on(loads)
        failed = cluster.leader(TOPIC, 0)
        disk_on_request.fail(cluster.data_directory(failed), "EIO")
        cluster.wait_for_other_leader(TOPIC, 0, failed)
        wait_until(lambda: len(cluster.ended_by_themselves()) == 1, "the end of the broker")
        assert "the only log directory" in cluster.log(failed)
        assert "Input/output error" in cluster.log(failed)
        everybody_goes_on(loads)
        assert cluster.stop(failed) == 1
        disk_on_request.mend(cluster.data_directory(failed))
        cluster.start([failed])
        assert_nothing_was_lost(cluster, loads)


def test_a_broker_with_a_full_disk_gives_its_leaderships_away_until_there_is_room(tmp_path: Path) -> None:
    with Cluster(tmp_path, command=COMMAND) as cluster:
        create_topic(cluster.bootstrap_servers, "idle", 1)
        loads = start_loads(cluster, 1)
        everybody_goes_on(loads)
        full = cluster.leader(TOPIC, 0)
        disk_on_request.fail(cluster.data_directory(full), "ENOSPC")
        cluster.wait_for_other_leader(TOPIC, 0, full)
        wait_until(lambda: offline(cluster) == [full], "the directory is offline")
        everybody_goes_on(loads)
        assert cluster.ended_by_themselves() == []
        disk_on_request.mend(cluster.data_directory(full))
        wait_until(lambda: not offline(cluster), "the directory is online")
        assert_nothing_was_lost(cluster, loads)

"""Share groups while brokers and members are killed and frozen: no record ends twice, is lost, or comes again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import share_drill
from tests.cluster.share_drill import Options
from tests.peers.clients.share_member import KINDS

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.mark.long
def test_members_of_ours(tmp_path: Path) -> None:
    assert share_drill.run(1, tmp_path, Options(members=4, seconds=20)) == []


@pytest.mark.java
@pytest.mark.peer("go")
def test_members_of_all_clients(tmp_path: Path) -> None:
    clients = ("oncelog", *KINDS)
    assert share_drill.run(2, tmp_path, Options(members=4, seconds=20, clients=clients)) == []

from __future__ import annotations

import random

from oncelog.coordination.memory import MemoryTree
from oncelog.core.controller.image import load_image
from oncelog.core.controller.resources import ALL_BROKERS, ConfigResourceType, Resource, current, write_configs
from oncelog.node.assembly import Outside, assemble
from oncelog.node.settings import read_settings
from oncelog.ports import Coordination
from oncelog.sim.files import MemoryFiles

OWN = Resource(ConfigResourceType.BROKER, "1")


class SeededEntropy:
    """Random bytes, the same in every run."""

    def __init__(self) -> None:
        self.token = random.Random(1).randbytes


def started(files: MemoryFiles, session: Coordination, min_insync_replicas: str) -> dict[str, str]:
    """What all brokers set once a broker configured so has joined."""
    settings = read_settings({"min.insync.replicas": min_insync_replicas, "log.sync.policy": "none"})
    assembled = assemble(Outside(files, session, SeededEntropy()), settings, ("localhost", 9092), now_ms=0)
    assert assembled.reports == []
    return dict(current(load_image(session.subtree("/")), ALL_BROKERS).configs)


def test_a_new_cluster_begins_with_the_configured_min_insync_replicas_and_keeps_them() -> None:
    files, tree = MemoryFiles(), MemoryTree()
    session = tree.session()
    assert started(files, session, "2") == {"min.insync.replicas": "2"}
    session.close()
    assert started(files, tree.session(), "3") == {"min.insync.replicas": "2"}


def test_a_cluster_of_an_earlier_version_keeps_what_was_set_for_its_broker_while_it_ran() -> None:
    files, tree = MemoryFiles(), MemoryTree()
    session = tree.session()
    started(files, session, "2")
    image = load_image(session.subtree("/"))
    earlier = [write_configs(current(image, ALL_BROKERS), {"log.roll.ms": "7"})]
    session.commit([*earlier, write_configs(current(image, OWN), {"min.insync.replicas": "3"})])
    session.close()
    session = tree.session()
    assert started(files, session, "2") == {"log.roll.ms": "7", "min.insync.replicas": "3"}
    assert current(load_image(session.subtree("/")), OWN).configs == {}

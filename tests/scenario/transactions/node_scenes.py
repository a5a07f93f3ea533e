"""How the scenarios of whole nodes begin: a node with two topics, a client with an open transaction."""

from __future__ import annotations

import pytest

from tests.scenario.node.requests import create_topic
from tests.scenario.transactions.node_client import (
    SETTINGS,
    SOURCE,
    TOPIC,
    Client,
    StepwiseDriver,
    open_producers,
    read,
    run,
)

both = pytest.mark.parametrize("v2", [True, False], ids=["v2", "v1"])


def new_driver() -> StepwiseDriver:
    """A node with the topic, three partitions, and the source."""
    driver = StepwiseDriver(SETTINGS)
    create_topic(driver.connect(), TOPIC, 3)
    create_topic(driver.connect(), SOURCE, 1)
    return driver


def begun(driver: StepwiseDriver, v2: bool, *partitions: int, transactional_id: str = "x") -> Client:
    """A client with an open transaction."""
    client = Client(transactional_id, v2)
    run(driver.connect(), client.initialise())
    run(driver.connect(), client.transaction("a", partitions, None, None))
    return client


def nothing_open(driver: StepwiseDriver) -> bool:
    """No transaction holds up a reader, and no leader knows of one."""
    ends = [read(driver, partition)[1:] for partition in range(3)]
    return all(stable == high for stable, high in ends) and not any(open_producers(driver, p) for p in range(3))

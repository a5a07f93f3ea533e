"""A broker with a share group, its member, and the persister of its share partitions' states."""

from __future__ import annotations

import pytest

from tests.scenario.node.driver import Driver
from tests.scenario.share.members import HandPersister, Member, broker_with_group


@pytest.fixture
def persister() -> HandPersister:
    return HandPersister()


@pytest.fixture
def driver(persister: HandPersister) -> Driver:
    return broker_with_group(persister)


@pytest.fixture
def member(driver: Driver) -> Member:
    return Member(driver)

"""Waiting for the successors of leaders that were lost a moment ago. Not an API."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from oncelog.core.controller.image.model import PartitionImage
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps, UntilElected


def until_elected(partitions: Callable[[], Iterable[PartitionImage]], context: Context) -> Steps[None]:
    """Wait while one of the partitions, as they are in the image of the moment, is led by a broker that is lost."""

    def are_led() -> bool:
        lost = context.cluster.lost_brokers
        return not lost or not any(partition.leader in lost for partition in partitions())

    if not are_led():
        yield UntilElected(are_led)

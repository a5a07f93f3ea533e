"""Checks that make a commit fail if the state it was decided on has changed.

An expected version identifies a node's state only while the node exists: a new one starts at version 0 again. So a
write to a topic also checks that no topic was deleted since, and a write that depends on a broker's registration checks
its record, whose version rises with each registration.
"""

from __future__ import annotations

from oncelog.base.tree import Check
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.image.model import BrokerImage


def controller_check(image: ClusterImage) -> list[Check]:
    """The controller has not changed: for all commits of a controller (KAFKA-6082)."""
    return _standing(image, layout.CONTROLLER_EPOCH)


def topics_check(image: ClusterImage) -> list[Check]:
    """No topic was deleted: for all writes to a topic's nodes."""
    return _standing(image, layout.DELETED_TOPICS)


def registration_checks(image: ClusterImage, broker: BrokerImage) -> list[Check]:
    """The broker is alive in this registration, with the same flags (KIP-841, KIP-903)."""
    checks = [Check(layout.broker_path(broker.broker_id), broker.version)]
    record = image.broker_records.get(broker.broker_id)
    if record is not None:
        checks.append(Check(layout.broker_record_path(broker.broker_id), record.version))
    return checks


def _standing(image: ClusterImage, path: str) -> list[Check]:
    version = image.versions.get(path)
    # Trees of earlier versions lack the node, and so the check.
    return [] if version is None else [Check(path, version)]

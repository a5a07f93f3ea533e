"""The format of the coordination tree: decides which brokers may join during an upgrade of oncelog.

docs/internals/cluster-tree.md has the rules. The controller raises the format in a commit that no registration can
interleave. Until then nothing is written that an earlier version would misread, or drop when rewriting a node: both
versions work side by side, and a downgrade is possible. The format never falls.
"""

from __future__ import annotations

from typing import Final

from oncelog.base.tree import Create, Operation, Set
from oncelog.core.controller.fencing import controller_check, registration_checks
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.image.model import FIRST_TREE_FORMAT, TreeFormats

KNOWN_FORMATS: Final = TreeFormats(FIRST_TREE_FORMAT, 2)
"""The supported formats. 2 adds several listeners, access control lists, quotas and credentials."""


def write_format(image: ClusterImage, tree_format: int) -> Operation:
    value = str(tree_format).encode()
    version = image.versions.get(layout.TREE_FORMAT)
    return Create(layout.TREE_FORMAT, value) if version is None else Set(layout.TREE_FORMAT, value, version)


def raise_format(image: ClusterImage) -> list[Operation]:
    """The controller's commit that raises the format to the highest that all live brokers support, or an empty list."""
    brokers = image.brokers.values()
    common = min((broker.tree_formats.newest for broker in brokers), default=image.tree_format)
    if common <= image.tree_format or any(broker.tree_formats.oldest > common for broker in brokers):
        return []
    checks = [check for broker in brokers for check in registration_checks(image, broker)]
    # Rewriting the unchanged registration counter makes a broker that joins meanwhile check the format again.
    number = str(image.broker_epoch).encode()
    count_again = Set(layout.BROKER_EPOCH, number, image.versions[layout.BROKER_EPOCH])
    return [*controller_check(image), count_again, *checks, write_format(image, common)]

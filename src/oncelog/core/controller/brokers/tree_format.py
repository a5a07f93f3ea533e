"""The format of the coordination tree: which brokers may join a cluster, while versions of oncelog change.

Rules:
1. The tree says its format (``/oncelog/format``; a tree without the node has the first). A broker joins only if it
   knows that format, and says in its registration which ones it knows.
2. The format rises when every live broker knows the next one, by a commit of the controller that no registration can
   come between. Until then nothing is written that an earlier version would not understand, or would drop when it
   writes the node anew; so both versions work side by side, and the way back is open.
3. It never falls: from then on brokers of the earlier version are refused, with a line that says what to do.
"""

from __future__ import annotations

from typing import Final

from oncelog.base.tree import Create, Operation, Set
from oncelog.core.controller.fencing import controller_check, registration_checks
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.image.model import FIRST_TREE_FORMAT, TreeFormats

KNOWN_FORMATS: Final = TreeFormats(FIRST_TREE_FORMAT, 2)
"""The formats that this version works with. 2: several listeners, access control lists, quotas and credentials."""


def write_format(image: ClusterImage, tree_format: int) -> Operation:
    """The operation that sets the format."""
    value = str(tree_format).encode()
    version = image.versions.get(layout.TREE_FORMAT)
    return Create(layout.TREE_FORMAT, value) if version is None else Set(layout.TREE_FORMAT, value, version)


def raise_format(image: ClusterImage) -> list[Operation]:
    """The controller's commit that raises the format to the highest that every live broker knows; none where it is
    that already. It writes the counter of registrations anew, unchanged, so that a broker that joins meanwhile has to
    look at the format again."""
    brokers = image.brokers.values()
    common = min((broker.tree_formats.newest for broker in brokers), default=image.tree_format)
    if common <= image.tree_format or any(broker.tree_formats.oldest > common for broker in brokers):
        return []
    checks = [check for broker in brokers for check in registration_checks(image, broker)]
    number = str(image.broker_epoch).encode()
    count_again = Set(layout.BROKER_EPOCH, number, image.versions[layout.BROKER_EPOCH])
    return [*controller_check(image), count_again, *checks, write_format(image, common)]

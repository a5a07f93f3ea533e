"""The partitions of ``__transaction_state`` that another broker is believed to lead.

Questions about all that a broker coordinates name them with their epochs, in tags of our own that Apache Kafka passes
over. A broker that does not lead them in these epochs would answer about fewer transactions than it is asked about; so
it refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.base.ids import TRANSACTION_STATE, BrokerId

if TYPE_CHECKING:
    from oncelog.core.controller.image.cluster_image import ClusterImage


def believed_leader_epochs(image: ClusterImage, broker_id: BrokerId) -> dict[int, int]:
    """The leader epoch by partition, of those that a broker leads."""
    topic = image.topics.get(TRANSACTION_STATE)
    partitions = () if topic is None else topic.partitions
    return {number: each.leader_epoch for number, each in enumerate(partitions) if each.leader == broker_id}

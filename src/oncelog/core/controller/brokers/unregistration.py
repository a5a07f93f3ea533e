"""Unregistration of a broker that is down for good (KIP-631): nothing counts on it any more until it registers again.

Its record stays, marked: what it says of the broker's directory keeps an empty one that registers under the same id
from being taken for one that has the acknowledged records.
"""

from __future__ import annotations

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId
from oncelog.base.tree import Set
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.outcomes import Decided, Refusal


def unregister(image: ClusterImage, broker_id: int) -> Decided[None]:
    """Unregister one broker; refused while it is alive, since it would register again at once."""
    if not image.is_registered(broker_id):
        message = f"Broker ID {broker_id} is not currently registered"
        return Decided([], [Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, message)])
    if broker_id in image.brokers:
        message = f"Broker ID {broker_id} is running: stop it first"
        return Decided([], [Refusal(ErrorCode.INVALID_REQUEST, message)])
    record = image.broker_records[BrokerId(broker_id)]
    value = layout.broker_record_value(record._replace(unregistered=True))
    return Decided([Set(layout.broker_record_path(BrokerId(broker_id)), value, record.version)], [None])

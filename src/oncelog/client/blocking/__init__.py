"""The client over blocking sockets: one thread, several requests in flight.

``Client`` is a connection pool with the cluster's metadata; producers and consumers build on it. None may be shared
between threads. All but ``Client`` are imported on first use, so that a command that only needs that starts fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.base.lazy_names import lazy_names
from oncelog.client.blocking.client import Client
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.config import ClientConfig
from oncelog.client.machine.positions import Fetched, FetchSettings

if TYPE_CHECKING:
    from oncelog.client.blocking.group import GroupConsumer
    from oncelog.client.blocking.producer import Producer
    from oncelog.client.blocking.share import ShareConsumer
    from oncelog.client.blocking.transactions import TransactionalProducer, TransactionSettings
    from oncelog.client.machine.consumed_records import read_fetched
    from oncelog.client.machine.group import GroupSettings
    from oncelog.client.machine.offsets import Committed
    from oncelog.client.machine.producer import ProducerSettings
    from oncelog.client.machine.share.values import (
        Acknowledge,
        Acknowledged,
        AcquiredBatches,
        AcquiredRange,
        ShareRecord,
        ShareSettings,
    )

_SHARE_VALUES: Final = "oncelog.client.machine.share.values"
_ELSEWHERE: Final = {
    "Acknowledge": _SHARE_VALUES,
    "Acknowledged": _SHARE_VALUES,
    "AcquiredBatches": _SHARE_VALUES,
    "AcquiredRange": _SHARE_VALUES,
    "Committed": "oncelog.client.machine.offsets",
    "GroupConsumer": "oncelog.client.blocking.group",
    "GroupSettings": "oncelog.client.machine.group",
    "Producer": "oncelog.client.blocking.producer",
    "ProducerSettings": "oncelog.client.machine.producer",
    "ShareConsumer": "oncelog.client.blocking.share",
    "ShareRecord": _SHARE_VALUES,
    "ShareSettings": _SHARE_VALUES,
    "TransactionSettings": "oncelog.client.blocking.transactions",
    "TransactionalProducer": "oncelog.client.blocking.transactions",
    "read_fetched": "oncelog.client.machine.consumed_records",
}

__all__ = [
    "Acknowledge",
    "Acknowledged",
    "AcquiredBatches",
    "AcquiredRange",
    "Client",
    "ClientConfig",
    "Committed",
    "FetchSettings",
    "Fetched",
    "Fetcher",
    "GroupConsumer",
    "GroupSettings",
    "Producer",
    "ProducerSettings",
    "ShareConsumer",
    "ShareRecord",
    "ShareSettings",
    "TransactionSettings",
    "TransactionalProducer",
    "read_fetched",
]

__getattr__ = lazy_names(__name__, _ELSEWHERE)

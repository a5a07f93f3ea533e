"""The asyncio client, over the same programs as ``client.blocking``. The README has an example.

A group consumer speaks the classic protocol or, with ``protocol="consumer"`` or in a group of that type, the consumer
protocol (KIP-848). Only one task at a time may use a producer or a consumer; the tasks of one loop may share a client.
After a ``TransactionFailed`` the transaction is aborted: rewind by ``consumer.seek({batch.partition: batch.position for
…})``.
"""

from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.aio.group import AsyncGroupConsumer
from oncelog.client.aio.producer import AsyncProducer
from oncelog.client.aio.share import AsyncShareConsumer
from oncelog.client.aio.transactions import AsyncTransactionalProducer
from oncelog.client.config import ClientConfig
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.group import GroupSettings
from oncelog.client.machine.offsets import Committed
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.client.machine.producer import ProducerSettings
from oncelog.client.machine.share.values import (
    Acknowledge,
    Acknowledged,
    AcquiredBatches,
    AcquiredRange,
    ShareRecord,
    ShareSettings,
)
from oncelog.client.machine.transaction_values import TransactionSettings

__all__ = [
    "Acknowledge",
    "Acknowledged",
    "AcquiredBatches",
    "AcquiredRange",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncGroupConsumer",
    "AsyncProducer",
    "AsyncShareConsumer",
    "AsyncTransactionalProducer",
    "ClientConfig",
    "Committed",
    "FetchSettings",
    "Fetched",
    "GroupSettings",
    "ProducerSettings",
    "ShareRecord",
    "ShareSettings",
    "TransactionSettings",
    "read_fetched",
]

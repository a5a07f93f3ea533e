"""The asyncio client, over the same machines as ``client.blocking``.

::

    async with AsyncClient("localhost:9092") as client, AsyncTransactionalProducer(
        client, TransactionSettings("copier-1")
    ) as producer, AsyncGroupConsumer(client, "copiers", ["in"], fetch=FetchSettings(read_committed=True)) as consumer:
        await producer.initialize()
        while True:
            fetched = await consumer.poll()
            if not fetched:
                continue
            async with producer.transaction():
                for batch in fetched:
                    for record in read_fetched(batch, read_committed=True):
                        await producer.send("out", record.value, key=record.key)
                offsets = {batch.partition: Committed(batch.next_offset) for batch in fetched}
                await producer.send_offsets(offsets, consumer.group_metadata)

A group consumer speaks the classic protocol or, with ``protocol="consumer"`` or in a group of that type, the consumer
protocol (KIP-848).

Only one task at a time may use a producer or a consumer; the tasks of one loop may share a client. After a
``TransactionFailed`` the transaction is aborted: rewind by ``consumer.seek({batch.partition: batch.position for …})``.
"""

from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.aio.group import AsyncGroupConsumer
from oncelog.client.aio.producer import AsyncProducer
from oncelog.client.aio.transactions import AsyncTransactionalProducer
from oncelog.client.config import ClientConfig
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.group import GroupSettings
from oncelog.client.machine.offsets import Committed
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.client.machine.producer import ProducerSettings
from oncelog.client.machine.transaction_values import TransactionSettings

__all__ = [
    "AsyncClient",
    "AsyncConsumer",
    "AsyncGroupConsumer",
    "AsyncProducer",
    "AsyncTransactionalProducer",
    "ClientConfig",
    "Committed",
    "FetchSettings",
    "Fetched",
    "GroupSettings",
    "ProducerSettings",
    "TransactionSettings",
    "read_fetched",
]

"""The client over asyncio: the same machines as ``client.blocking``, for programs that have a loop.

One task may use a producer at a time; a client may be shared by the tasks of one loop.
"""

from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.aio.group import AsyncGroupConsumer
from oncelog.client.aio.producer import AsyncProducer
from oncelog.client.aio.transactions import AsyncTransactionalProducer

__all__ = ["AsyncClient", "AsyncConsumer", "AsyncGroupConsumer", "AsyncProducer", "AsyncTransactionalProducer"]

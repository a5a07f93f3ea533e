"""A pure Python client of any Kafka cluster: producers, consumers and transactions (V1 and V2, KIP-890).

Two clients run the same programs (``programs``) over the same state machines (``machine``):

``oncelog.client.blocking``
    ``Client``, ``Producer``, ``TransactionalProducer``, ``Fetcher``, ``GroupConsumer``, ``ShareConsumer``. No threads:
    work happens only while one of their methods runs.
``oncelog.client.aio``
    ``AsyncClient``, ``AsyncProducer``, ``AsyncTransactionalProducer``, ``AsyncConsumer``, ``AsyncGroupConsumer``,
    ``AsyncShareConsumer``, on any event loop.

Consumers return batches as received; ``read_fetched`` of either package turns them into records. Share consumers
return records. Errors outside this
program are ``ClientError`` (``oncelog.client.errors``), in one line that says what to do.
"""

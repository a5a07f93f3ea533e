"""A client of any Kafka cluster, in Python alone: producers, consumers and transactions (V1 and V2, KIP-890).

Two clients, which drive the same programs (``programs``) over the same machines (``machine``):

``oncelog.client.blocking``
    ``Client``, ``Producer``, ``TransactionalProducer``, ``Fetcher``, ``GroupConsumer``. No threads: things happen
    while one of their methods runs.
``oncelog.client.aio``
    ``AsyncClient``, ``AsyncProducer``, ``AsyncTransactionalProducer``, ``AsyncConsumer``, ``AsyncGroupConsumer``,
    on any event loop.

Consumers return batches as they came over the wire; ``read_fetched`` of either package makes records of them. Errors
outside this program are ``ClientError`` (``oncelog.client.errors``), in one line that says what to do. The
pipeline, the tools and the simulator stand on this client; it does not try to replace confluent-kafka.
"""

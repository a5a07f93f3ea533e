"""Administration as functions that take a client and return rows (dataclasses).

Each is written once, as a program over a cluster (``client.programs.operation``), and has two forms: with a blocking
client it returns its result, with an asyncio client an awaitable of it::

    create_topic(client, NewTopic("orders"))
    await create_topic(async_client, NewTopic("orders"))

The rule: nothing is printed and nothing is kept; a refusal is raised as :class:`oncelog.client.errors.BrokerRefused`.
Works against any Kafka cluster: each request goes to the leader, coordinator or controller it belongs to.
"""

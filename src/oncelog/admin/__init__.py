"""Administers any Kafka cluster: functions that take a client and return rows (dataclasses).

A blocking client returns a function's result, an asyncio client an awaitable of it (``client.programs.operation``)::

    create_topic(client, NewTopic("orders"))
    await create_topic(async_client, NewTopic("orders"))

Functions print nothing and keep no state; a refusal is raised as :class:`oncelog.client.errors.BrokerRefused`. Each
request goes to the leader, coordinator or controller that owns the resource.
"""

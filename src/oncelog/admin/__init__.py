"""Administers any Kafka cluster: functions that take a client and return rows (dataclasses).

Each function is a program over a cluster (``client.programs.operation``) with two forms: a blocking client returns its
result, an asyncio client returns an awaitable of it::

    create_topic(client, NewTopic("orders"))
    await create_topic(async_client, NewTopic("orders"))

The rule: functions print nothing and keep no state; a refusal is raised as
:class:`oncelog.client.errors.BrokerRefused`. Each request goes to the leader, coordinator or controller that owns the
resource.
"""

"""Administration as functions that take a client and return rows (dataclasses).

The rule: nothing is printed and nothing is kept; a refusal is raised as :class:`oncelog.client.errors.BrokerRefused`.
Works against any Kafka cluster: each request goes to the leader, coordinator or controller it belongs to.
"""

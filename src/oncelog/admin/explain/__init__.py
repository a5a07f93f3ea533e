"""Explains why something does not advance: a group, a topic, a partition, a producer, a transactional id.

Modules, from questions to words: ``partition_facts`` and ``group_facts`` ask the cluster, ``group_history`` reads what
the coordinator has written of a group (commits and rebalances with their times). ``partition_causes`` and
``group_causes`` compare the facts with the causes that are known (pure: facts in, ``findings`` out). ``targets`` puts
them together, with the transactions that ``admin.transactions`` finds. Works on every Apache Kafka.

The rule: a finding says only what its evidence says. What cannot be known from outside (whether a member polls, what
principal it has, what it does with a record) is said to be unknown, with what would tell it.
"""

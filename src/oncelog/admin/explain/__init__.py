"""Explains why a group, topic, partition, producer or transactional id does not advance.

Modules, from requests to text: ``partition_facts`` and ``group_facts`` query the cluster, ``group_history`` reads the
coordinator's log of a group (commits and rebalances with their times). ``partition_causes`` and ``group_causes``
compare the facts with the known causes (pure: facts in, ``findings`` out). ``consumer_group_facts``,
``consumer_group_history``, ``consumer_group_causes`` and ``subscription_causes`` are the same for the consumer protocol
(KIP-848). ``targets`` combines all with the transactions that ``admin.transactions`` finds.

Works on every Apache Kafka.

The rule: a finding states only what its evidence shows. Anything that cannot be seen from outside (whether a member
polls, its principal, its use of a record) is reported as unknown, with the means to find out.
"""

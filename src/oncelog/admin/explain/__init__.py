"""Explains why a group, topic, partition, producer or transactional id does not advance, in every Apache Kafka.

Modules ``…_facts`` query the cluster, and ``…_history`` the coordinator's log of a group; ``…_causes`` compare the
facts with the known causes (pure: facts in, ``findings`` out). ``consumer_group_…`` and ``subscription_causes`` are for
the consumer protocol (KIP-848). ``targets`` combines all with the transactions that ``admin.transactions`` finds;
``whole_cluster`` does so for all groups at once, from facts that ``cluster_groups`` reads in bulk.

A finding states only what its evidence shows. Anything that cannot be seen from outside (whether a member polls, its
principal, its use of a record) is reported as unknown, with the means to find out.
"""

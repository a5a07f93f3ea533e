"""``oncelog txn``: find, explain and end hanging transactions, here and in any Apache Kafka.

Requests that single brokers did not answer go to stderr and never to the exit code.
"""

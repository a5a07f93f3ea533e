"""``oncelog txn``: find, explain and end hanging transactions, here and in any Apache Kafka.

The rule of these modules: arguments in, ``oncelog.admin.transactions`` called, rows out. Questions that single brokers
did not answer go to stderr and never to the exit code.
"""

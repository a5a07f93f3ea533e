"""``oncelog txn``: find, explain and end hanging transactions, here and in any Apache Kafka.

The rule of these modules: arguments in, ``oncelog.admin.transactions`` called, rows out. What single brokers did not
answer goes to stderr and never to the exit code. ``looking`` has list, describe and producers; ``finding`` find-hanging
and explain; ``watching`` watch; ``ending`` abort and force-terminate.
"""

from oncelog.cli.txn.app import app as app

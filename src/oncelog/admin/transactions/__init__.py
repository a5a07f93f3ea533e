"""Transactions as an administrator sees them, in this broker and in any Apache Kafka (KIP-664).

Modules: ``listing`` and ``describing`` ask coordinators, ``producers`` asks partition leaders, ``hanging`` puts both
side by side, ``judging`` says what follows (pure), ``explaining`` tells why a consumer does not advance, ``aborting``
and ``terminating`` end transactions. ``asking`` is how many brokers are asked at once.

The rule: a broker that is down, or forbids a request, is a row of its own (:class:`asking.Unanswered`); it never makes
the other brokers' answers worthless, and never lets a transaction look worse than it is.
"""

"""Logins as Apache Kafka 4.3.1 answers them, recorded: `conversations` has what is said, `golden.json` what
was answered.

`python -m tests.conformance.logins.record` records anew, from a real broker; `test_replay` has ours answer the same.
"""

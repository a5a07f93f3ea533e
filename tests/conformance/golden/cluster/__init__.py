"""A cluster as its clients see it: conversations with three brokers, recorded from Apache Kafka and held with ours.

A conversation (``conversations``) is a function that asks brokers by their ids, stops and starts them, and waits for
states. Against Apache Kafka it writes the recording (``record``); in the tests the same function speaks to three
brokers of ours, and what was asked and answered is compared with the recording by the rules of the golden corpus.
"""

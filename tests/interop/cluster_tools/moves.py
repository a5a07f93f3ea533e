"""The part of the session that moves replicas slowly: plans made by the tool, throttles raised, moves taken back."""

from __future__ import annotations

from tests.interop.cluster_tools.session import Session

TOOL = "kafka-reassign-partitions"
SLOW = ("--throttle", "1000")
BATCHES, BATCH_BYTES = 300, 4_000
"""With ``replica.fetch.max.bytes=1000`` each fetch has one batch, and a throttle lets one through in ten seconds or so:
what is moved slowly is not there before a busy machine has run a dozen tools."""


def moves(session: Session) -> None:
    """kafka-reassign-partitions: generate, a throttle that holds, one that is raised, cancel."""
    _generated(session)
    _throttled(session)
    _placed_in_directories(session)


def _generated(session: Session) -> None:
    session.create("planned", "1,2,3")
    session.create("planned-3", "1:2:3,2:3:1")
    for name, topic in (("one", "planned"), ("three", "planned-3"), ("absent", "absent")):
        path = session.file(f"{name}-topics.json", {"topics": [{"topic": topic}], "version": 1})
        session.run(TOOL, "--generate", "--topics-to-move-json-file", path, "--broker-list", "2")
    path = session.file("three-topics.json", {"topics": [{"topic": "planned-3"}], "version": 1})
    spread = ("--topics-to-move-json-file", path, "--broker-list", "1,2,3")
    session.run(TOOL, "--generate", *spread, keep="^Current|^Proposed")
    session.run(TOOL, "--generate", *spread, "--disable-rack-aware", keep="^Current|^Proposed")
    session.run(TOOL, "--generate", "--topics-to-move-json-file", path, "--broker-list", "1,2,9")


def _throttled(session: Session) -> None:
    session.create("slow", "1:2,2:1")
    session.produce("slow", {0: BATCHES, 1: BATCHES}, size=BATCH_BYTES, one_by_one=True)
    plan = session.plan("slow.json", slow_0=[3, 2], slow_1=[2, 3])
    present = ("--reassignment-json-file", plan)
    session.run(TOOL, "--execute", *present, *SLOW)
    session.run(TOOL, "--execute", *present, *SLOW)
    session.run(TOOL, "--list")
    session.run(TOOL, "--verify", *present)
    session.run("kafka-topics", "--describe", "--topic", "slow")
    _throttles(session)
    session.run(TOOL, "--execute", *present, "--additional", "--throttle", "2000")
    _throttles(session)
    session.run(TOOL, "--cancel", *present, "--preserve-throttles")
    _throttles(session)
    session.run(TOOL, "--cancel", *present)
    session.run(TOOL, "--list")
    session.run("kafka-topics", "--describe", "--topic", "slow")
    session.run(TOOL, "--execute", *present, *SLOW)
    session.run(TOOL, "--cancel", *present)
    _throttles(session)
    session.run(TOOL, "--execute", *present, "--throttle", "1")
    session.run(TOOL, "--execute", *present, "--additional", "--throttle", "50000000")
    session.until("moved", lambda status: not status.reassignments)
    session.run(TOOL, "--verify", *present)
    _throttles(session)
    session.run("kafka-log-dirs", "--describe", "--topic-list", "slow")
    session.run("kafka-log-dirs", "--describe", "--topic-list", "slow", "--broker-list", "1,3")
    session.run("kafka-log-dirs", "--describe", "--topic-list", "slow", "--broker-list", "1,9")


def _placed_in_directories(session: Session) -> None:
    """In a plan that names directories any is the one that brokers here have."""
    plan = {"topic": "planned", "partition": 0, "replicas": [2], "log_dirs": ["any"]}
    path = session.file("directory.json", {"version": 1, "partitions": [plan]})
    session.run(TOOL, "--execute", "--reassignment-json-file", path)
    session.until("moved", lambda status: not status.reassignments)
    session.run(TOOL, "--verify", "--reassignment-json-file", path)


def _throttles(session: Session) -> None:
    session.run("kafka-configs", "--describe", "--entity-type", "brokers", keep="throttled")
    session.run("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", "slow")

"""The session that is compared: topics, moves, elections, settings, directories and groups.

Each part is a function that takes the session. Topics are placed by hand, so that nothing depends on where a broker
would put them. Brokers 2 and 3 are killed in between; the first stays, for it may be the controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncelog.admin.cluster_status import ClusterStatus
from tests.interop.cluster_tools.entities import entities
from tests.interop.cluster_tools.moves import moves
from tests.interop.cluster_tools.session import Session
from tests.interop.cluster_tools.transactions import transactions

PLACED = "1:2:3,2:3:1,3:1:2"
UNAVAILABLE = "--unavailable-partitions"
STATES = ("--under-replicated-partitions", "--under-min-isr-partitions", "--at-min-isr-partitions", UNAVAILABLE)


def play(session: Session, parts: Sequence[str] = ()) -> str:
    """Run all parts, or those that are named; the transcript."""
    for part in PARTS:
        if not parts or part.__name__ in parts:
            session.title(part.__name__)
            part(session)
    return "\n".join(session.transcript)


def describe(session: Session, topic: str, *options: str) -> None:
    """kafka-topics --describe."""
    session.run("kafka-topics", "--describe", "--topic", topic, *options)


def topics(session: Session) -> None:
    """Creating, describing, growing, refusing, deleting."""
    session.create("placed", PLACED, min_insync_replicas="2")
    describe(session, "placed")
    session.run("kafka-topics", "--create", "--topic", "spread", "--partitions", "6", "--replication-factor", "3")
    describe(session, "spread", "--topics-with-overrides")
    session.run("kafka-topics", "--create", "--topic", "much", "--partitions", "1", "--replication-factor", "4")
    session.run("kafka-topics", "--create", "--topic", "uneven", "--replica-assignment", "1:2,3")
    session.run("kafka-topics", "--create", "--topic", "twice", "--replica-assignment", "1:1")
    session.run("kafka-topics", "--create", "--topic", "nobody", "--replica-assignment", "1:9")
    session.run("kafka-topics", "--create", "--topic", "placed", "--partitions", "1")
    session.run("kafka-topics", "--create", "--topic", "placed", "--partitions", "1", "--if-not-exists")
    session.run("kafka-topics", "--create", "--topic", "bad name", "--partitions", "1")
    session.run("kafka-topics", "--alter", "--topic", "placed", "--partitions", "4", "--replica-assignment", PLACED)
    grown = f"{PLACED},2:1:3"
    session.run("kafka-topics", "--alter", "--topic", "placed", "--partitions", "4", "--replica-assignment", grown)
    session.run("kafka-topics", "--alter", "--topic", "placed", "--partitions", "2")
    session.run("kafka-topics", "--alter", "--topic", "placed", "--partitions", "4")
    session.run("kafka-topics", "--alter", "--topic", "absent", "--partitions", "4")
    describe(session, "placed")
    for state in STATES:
        describe(session, "placed", state)
    session.run("kafka-topics", "--describe", "--topic", "absent")
    session.run("kafka-topics", "--list", "--exclude-internal")
    session.run("kafka-topics", "--delete", "--topic", "spread")
    session.run("kafka-topics", "--delete", "--topic", "spread")


def settings(session: Session) -> None:
    """kafka-configs of topics, brokers, and the default of brokers."""
    one = ("--entity-type", "brokers", "--entity-name", "1")
    every = ("--entity-type", "brokers", "--entity-default")
    topic = ("--entity-type", "topics", "--entity-name", "placed")
    session.run("kafka-configs", "--describe", *topic)
    session.run(
        "kafka-configs", "--alter", *topic, "--add-config", "retention.ms=3600000,cleanup.policy=[compact,delete]"
    )
    session.run("kafka-configs", "--describe", *topic)
    session.run("kafka-configs", "--alter", *topic, "--delete-config", "retention.ms,cleanup.policy")
    session.run("kafka-configs", "--alter", *topic, "--add-config", "min.insync.replicas=0")
    session.run("kafka-configs", "--alter", *topic, "--add-config", "no.such.key=1")
    session.run("kafka-configs", "--alter", *topic, "--delete-config", "no.such.key")
    session.run("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", "absent")
    session.run("kafka-configs", "--alter", *one, "--add-config", "log.cleaner.threads=2")
    session.run("kafka-configs", "--describe", *one)
    session.run("kafka-configs", "--alter", *every, "--add-config", "message.max.bytes=2000000")
    session.run("kafka-configs", "--describe", *every)
    session.run("kafka-configs", "--describe", *one, "--all", keep=r"message\.max\.bytes|log\.cleaner\.threads")
    session.run("kafka-configs", "--alter", *one, "--add-config", "node.id=7")
    session.run("kafka-configs", "--alter", *one, "--add-config", "message.max.bytes=many")
    session.run("kafka-configs", "--alter", *one, "--delete-config", "log.cleaner.threads")
    session.run("kafka-configs", "--alter", *every, "--delete-config", "message.max.bytes")
    session.run("kafka-configs", "--describe", "--entity-type", "brokers")
    session.run("kafka-configs", "--alter", "--entity-type", "brokers", "--entity-name", "9", "--add-config", "a=b")


def positions(session: Session) -> None:
    """kafka-get-offsets, kafka-log-dirs, kafka-delete-records, kafka-dump-log on a follower."""
    session.produce("placed", {0: 10, 1: 20, 2: 30})
    session.until("in sync", lambda status: not status.under_replicated)
    session.run("kafka-get-offsets", "--topic", "placed")
    for moment in ("earliest", "-1", "max-timestamp", "earliest-local", "latest-tiered"):
        session.run("kafka-get-offsets", "--topic-partitions", "placed:1", "--time", moment)
    session.run("kafka-get-offsets", "--topic", "absent")
    records = {"partitions": [{"topic": "placed", "partition": 0, "offset": 4}], "version": 1}
    session.run("kafka-delete-records", "--offset-json-file", session.file("delete.json", records))
    session.run("kafka-get-offsets", "--topic-partitions", "placed:0", "--time", "earliest")
    session.run("kafka-log-dirs", "--describe", "--topic-list", "absent")


def reassignments(session: Session) -> None:
    """kafka-reassign-partitions: all it can do, with a throttle and towards a dead broker, too."""
    tool = "kafka-reassign-partitions"
    session.create("moved", "1:2,2:1")
    session.produce("moved", {0: 50, 1: 50})
    plan = session.plan("plan.json", moved_0=[3, 2], moved_1=[2, 3])
    session.run(tool, "--verify", "--reassignment-json-file", plan)
    session.run(tool, "--execute", "--reassignment-json-file", plan)
    session.until("moved", lambda status: not status.reassignments)
    session.run(tool, "--verify", "--reassignment-json-file", plan)
    session.run(tool, "--list")
    describe(session, "moved")
    back = session.plan("back.json", moved_0=[1, 2], moved_1=[2, 1])
    session.run(tool, "--execute", "--reassignment-json-file", back, "--throttle", "100000")
    session.until("moved back", lambda status: not status.reassignments)
    session.run("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", "moved")
    session.run("kafka-configs", "--describe", "--entity-type", "brokers")
    session.run(tool, "--verify", "--reassignment-json-file", back, "--preserve-throttles")
    session.run(tool, "--verify", "--reassignment-json-file", back)
    session.run("kafka-configs", "--describe", "--entity-type", "brokers")
    session.run("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", "moved")
    nobody = session.plan("nobody.json", moved_0=[1, 9])
    session.run(tool, "--execute", "--reassignment-json-file", nobody)
    absent = session.plan("absent.json", absent_0=[1, 2])
    session.run(tool, "--execute", "--reassignment-json-file", absent)
    session.run(tool, "--verify", "--reassignment-json-file", absent)
    session.run(tool, "--execute", "--reassignment-json-file", session.plan("twice.json", moved_0=[1, 1]))
    session.run(tool, "--execute", "--reassignment-json-file", session.plan("none.json", moved_0=[]))
    _towards_a_dead_broker(session)


def _towards_a_dead_broker(session: Session) -> None:
    tool = "kafka-reassign-partitions"
    stuck = session.plan("stuck.json", moved_0=[3, 1], moved_1=[3, 2])
    session.run(tool, "--execute", "--reassignment-json-file", stuck)
    session.until("moved", lambda status: not status.reassignments)
    session.brokers.kill([2])
    session.until("broker 2 is gone", lambda status: _leads(status, 2) == 0 and len(status.under_replicated) > 0)
    stuck = session.plan("dead.json", moved_0=[1, 2], moved_1=[1, 3])
    session.run(tool, "--execute", "--reassignment-json-file", stuck)
    session.run(tool, "--verify", "--reassignment-json-file", stuck)
    session.run(tool, "--list")
    describe(session, "moved")
    again = session.plan("again.json", moved_0=[3, 2])
    session.run(tool, "--execute", "--reassignment-json-file", again)
    session.run(tool, "--execute", "--reassignment-json-file", again, "--additional")
    session.run(tool, "--list")
    session.run(tool, "--cancel", "--reassignment-json-file", again)
    session.run(tool, "--list")
    session.run(tool, "--cancel", "--reassignment-json-file", again)
    describe(session, "moved")
    session.brokers.start([2])
    session.brokers.wait_healthy()
    describe(session, "moved")


def _leads(status: ClusterStatus, broker_id: int) -> int:
    return sum(broker.leads for broker in status.brokers if broker.broker_id == broker_id)


def elections(session: Session) -> None:
    """kafka-leader-election, preferred."""
    tool = "kafka-leader-election"
    session.create("elected", PLACED)
    session.run(tool, "--election-type", "preferred", "--topic", "elected", "--partition", "0")
    session.run(tool, "--election-type", "unclean", "--topic", "elected", "--partition", "0")
    session.run(tool, "--election-type", "preferred", "--topic", "absent", "--partition", "0")
    session.run(tool, "--election-type", "preferred", "--topic", "elected", "--partition", "7")
    session.brokers.kill([3])
    session.until("broker 3 is gone", lambda status: _leads(status, 3) == 0)
    session.run(tool, "--election-type", "preferred", "--topic", "elected", "--partition", "2")
    describe(session, "elected")
    session.brokers.start([3])
    session.brokers.wait_healthy()
    describe(session, "elected")
    both = {"partitions": [{"topic": "elected", "partition": 0}, {"topic": "elected", "partition": 2}]}
    session.run(tool, "--election-type", "preferred", "--path-to-json-file", session.file("elect.json", both))
    describe(session, "elected")
    session.run(tool, "--election-type", "preferred", "--all-topic-partitions", keep="elected|Error")


def states(session: Session) -> None:
    """Under-replicated, at and under min.insync.replicas, unavailable."""
    session.create("three", "2:3:1", min_insync_replicas="2")
    session.create("two", "2:3", min_insync_replicas="2")
    session.create("one", "3")
    session.brokers.kill([3])
    session.until("broker 3 is gone", lambda status: len(status.without_leader) == 1)
    mine = ("--topic", "three|two|one")
    session.run("kafka-topics", "--describe", *mine)
    for state in STATES:
        session.run("kafka-topics", "--describe", *mine, state)
    session.run("kafka-log-dirs", "--describe", "--topic-list", "one,two")
    session.brokers.start([3])
    session.brokers.wait_healthy()
    for state in STATES:
        session.run("kafka-topics", "--describe", *mine, state)


def unclean(session: Session) -> None:
    """A leader that lacks what the last one had: only by name."""
    session.create("risked", "2:3", min_insync_replicas="1")
    session.brokers.kill([3])
    session.until("broker 3 is gone", lambda status: _leads(status, 3) == 0 and len(status.under_replicated) > 0)
    session.produce("risked", {0: 5})
    session.brokers.kill([2])
    session.until("no leader", lambda status: "risked" in {item.topic for item in status.without_leader})
    session.brokers.start([3])
    session.until("broker 3 is back", lambda status: _leads(status, 3) > 0)
    describe(session, "risked")
    describe(session, "risked", UNAVAILABLE)
    one = ("--topic", "risked", "--partition", "0")
    session.run("kafka-leader-election", "--election-type", "preferred", *one)
    session.run("kafka-leader-election", "--election-type", "unclean", *one)
    describe(session, "risked")
    session.run("kafka-get-offsets", "--topic", "risked")
    session.brokers.start([2])
    session.brokers.wait_healthy()
    describe(session, "risked")


def groups(session: Session) -> None:
    """kafka-consumer-groups: of a group that is empty; resetting, deleting."""
    tool = "kafka-consumer-groups"
    consume = ("--topic", "placed", "--group", "readers", "--from-beginning", "--max-messages", "56")
    session.run("kafka-console-consumer", *consume, "--timeout-ms", "60000", keep="Processed")
    session.run(tool, "--describe", "--group", "readers")
    session.run(tool, "--describe", "--group", "readers", "--state", keep="STATE|readers")
    session.run(tool, "--describe", "--group", "readers", "--members")
    session.run(tool, "--list", "--state")
    session.run(tool, "--describe", "--group", "absent")
    reset = ("--reset-offsets", "--group", "readers", "--topic", "placed:0,1")
    session.run(tool, *reset, "--to-earliest", "--dry-run")
    session.run(tool, *reset, "--shift-by", "-3", "--execute")
    session.run(tool, "--delete-offsets", "--group", "readers", "--topic", "placed:2")
    session.run(tool, "--describe", "--group", "readers")
    session.run(tool, "--delete", "--group", "readers")
    session.run(tool, "--delete", "--group", "absent")


PARTS: Final = (
    topics,
    settings,
    positions,
    reassignments,
    elections,
    states,
    unclean,
    groups,
    moves,
    transactions,
    entities,
)

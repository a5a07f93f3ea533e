"""Causes that come from a coordinator's configuration and from permissions, made for real on oncelog and on Apache
Kafka.

A broker starts three times on the same data, each time with other limits; so each kind of broker has one test.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

import pytest

from oncelog.admin.acls import create_acls
from oncelog.admin.explain.consumer_group_facts import LOOK_AGAIN_MS
from oncelog.admin.explain.findings import Cause, Severity
from oncelog.admin.explain.targets import explain_group
from oncelog.admin.groups import describe_group
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.acls import AclBinding, AclEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from oncelog.base.errors import ErrorCode
from oncelog.client.blocking import Client
from oncelog.client.blocking.group import GroupConsumer
from oncelog.client.blocking.system import System, ThisMachine
from oncelog.client.errors import BrokerRefused
from oncelog.client.security import parse_security
from oncelog.testing import Broker
from tests.interop.admin.conftest import FAST
from tests.interop.admin.explain.test_consumer_protocol import HOLDS, classic_member, the
from tests.interop.admin.explain.test_explain import causes
from tests.interop.admin.members import LEAVES, Member
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.process import free_ports
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
_LISTENER: Final = "SASL_PLAINTEXT"
_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
UPGRADES_ONLY: Final = {
    "group.consumer.migration.policy": "upgrade",
    "group.consumer.max.size": "2",
    "group.consumer.assignors": "uniform,range",
}
SMALL_CLASSIC_GROUPS: Final = {"group.max.size": "1", "group.consumer.assignors": "uniform"}
NO_CONVERSIONS: Final = {"group.consumer.migration.policy": "disabled"}


@dataclass(frozen=True)
class Running:
    """A running broker: ``admin`` may do anything, and ``guest`` makes clients of User:app."""

    admin: Client
    guest: Callable[[System], Client]
    allow: Callable[[Operation, ResourceType, str], None]
    another: Callable[[str], Client]
    """A client that may do anything, by its client id."""


class Room(Protocol):
    """A broker that starts again on its data."""

    def running(self, limits: Mapping[str, str]) -> AbstractContextManager[Running]: ...


class Ours:
    """Logins by SCRAM over TLS; the listener of brokers has all rights."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextmanager
    def running(self, limits: Mapping[str, str]) -> Iterator[Running]:
        with ExitStack() as stack:
            broker = stack.enter_context(Broker(limits, data_dir=self._directory, security="scram"))

            def another(client_id: str) -> Client:
                config = replace(FAST, client_id=client_id, security=parse_security(broker.security.link_config()))
                return stack.enter_context(Client(broker.link_servers, config=config))

            def guest(system: System) -> Client:
                broker.add_user("app")
                config = replace(FAST, client_id="app", security=parse_security(broker.client_config("app")))
                return stack.enter_context(Client(broker.bootstrap_servers, config=config, system=system))

            def allow(operation: Operation, kind: ResourceType, name: str) -> None:
                broker.add_user("app")
                broker.allow("app", operation.name.lower(), **{kind.name.lower(): name})

            yield Running(another("admin"), guest, allow, another)


class OfApacheKafka:
    """Logins by PLAIN; clients that do not log in have all rights."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port, controller, users_port = free_ports(3)
        plain, self._users = f"127.0.0.1:{self._port}", f"127.0.0.1:{users_port}"
        listeners = f"PLAINTEXT://{plain},{_LISTENER}://{self._users}"
        self._properties = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": listeners,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,{_LISTENER}:{_LISTENER}",
            "sasl.enabled.mechanisms": "PLAIN",
            f"listener.name.{_LISTENER.lower()}.plain.sasl.jaas.config": f'{_LOGIN} user_app="app-secret";',
            "offsets.topic.num.partitions": "1",
        }

    @contextmanager
    def running(self, limits: Mapping[str, str]) -> Iterator[Running]:
        properties = {**self._properties, **limits}
        with (
            ApacheKafka(self._directory, heap_mb=256, properties=properties, port=self._port) as broker,
            ExitStack() as stack,
        ):

            def another(client_id: str) -> Client:
                return stack.enter_context(Client(broker.bootstrap_servers, config=replace(FAST, client_id=client_id)))

            def guest(system: System) -> Client:
                login = {
                    "security.protocol": _LISTENER,
                    "sasl.mechanism": "PLAIN",
                    "sasl.username": "app",
                    "sasl.password": "app-secret",
                }
                config = replace(FAST, client_id="app", security=parse_security(login))
                return stack.enter_context(Client(self._users, config=config, system=system))

            def allow(operation: Operation, kind: ResourceType, name: str) -> None:
                entry = AclEntry("User:app", "*", operation, Permission.ALLOW)
                create_acls(admin, [AclBinding(ResourcePattern(kind, PatternType.LITERAL, name), entry)])

            admin = another("admin")
            yield Running(admin, guest, allow, another)
            broker.stop()


@pytest.mark.parametrize("room", [Ours, pytest.param(OfApacheKafka, marks=pytest.mark.java)])
def test_limits_and_permissions_of_a_coordinator(room: Callable[[Path], Room], tmp_path: Path) -> None:
    """One after the other: some causes begin before a restart and are seen after it."""
    brokers = room(tmp_path / "data")
    with brokers.running(UPGRADES_ONLY) as running:
        create_topic(running.admin, NewTopic("t", partitions=2))
        upgrade_refused_by_size(running)
        upgrade_refused_by_a_malformed_subscription(running.admin)
        downgrade_refused_by_policy(running.admin)
        topics_that_the_member_may_not_see(running)
        epochs_that_rise_between_two_looks(running)
        Member(running.admin, "g-assignor", subscribed_topic_names=["t"], server_assignor="range").has(2)
    with brokers.running(SMALL_CLASSIC_GROUPS) as running:
        assignor_that_is_gone(running.admin)
        downgrade_refused_by_size(running.admin)
    with brokers.running(NO_CONVERSIONS) as running:
        upgrade_refused_by_policy(running.admin)


@contextmanager
def classic_consumers(running: Running, group: str, count: int) -> Iterator[None]:
    """So many of our own, until the end of the block."""
    is_over = threading.Event()

    def consume(client: Client) -> None:
        with GroupConsumer(client, group, ["t"], protocol="classic") as consumer:
            while not is_over.is_set():
                consumer.poll(50)

    threads = [threading.Thread(target=consume, args=[running.another(f"classic-{number}")]) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: group_is(running.admin, group, "classic", count), f"{count} members of {group}")
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def group_is(client: Client, group: str, group_type: str, members: int) -> bool:
    try:
        described = describe_group(client, group)
    except BrokerRefused:
        return False
    return (described.group_type, described.state, len(described.members)) == (group_type, "Stable", members)


def refusal_of_upgrade(client: Client, group: str) -> str:
    """The coordinator's words to a member of the consumer protocol that it refuses."""
    answer = Member(client, group, subscribed_topic_names=["t"]).heartbeat()
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    return answer.error_message or ""


def conversion(client: Client, group: str) -> str:
    """The reasons of explain."""
    told = the(explain_group(client, group), Cause.CONVERSION_REFUSED)
    assert told.severity is Severity.NOTE
    return told.sentences[0]


def upgrade_refused_by_size(running: Running) -> None:
    with classic_consumers(running, "g-large", 3):
        assert "size exceeds the consumer group maximum size" in refusal_of_upgrade(running.admin, "g-large")
        told = conversion(running.admin, "g-large")
    assert "is refused by this classic group (GROUP_ID_NOT_FOUND): it has 3 members, and " in told
    assert told.endswith("group.consumer.max.size is 2.")


def upgrade_refused_by_a_malformed_subscription(client: Client) -> None:
    classic_member(client, "g-malformed", "t", None, metadata=b"\xff")
    assert "the embedded consumer protocol is malformed" in refusal_of_upgrade(client, "g-malformed")
    told = conversion(client, "g-malformed")
    assert told.endswith("the subscriptions of 'admin' are not those of the consumer protocol.")


def downgrade_refused_by_policy(client: Client) -> None:
    classic_member(client, "g-stays", "t", None)
    leaving = Member(client, "g-stays", subscribed_topic_names=["t"])
    leaving.follow()
    assert Cause.CONVERSION_REFUSED not in causes(explain_group(client, "g-stays"))
    leaving.heartbeat(LEAVES)
    told = conversion(client, "g-stays")
    assert told.startswith("All its members are classic, and it stays a group of the consumer protocol: ")
    assert told.endswith("group.consumer.migration.policy of its coordinator is upgrade.")


def downgrade_refused_by_size(client: Client) -> None:
    classic_member(client, "g-too-large", "t", None)
    leaving = Member(client, "g-too-large", subscribed_topic_names=["t"])
    leaving.follow()
    classic_member(client, "g-too-large", "t", None)
    leaving.heartbeat(LEAVES)
    assert conversion(client, "g-too-large").endswith("it has 2 members, and group.max.size is 1.")


def upgrade_refused_by_policy(client: Client) -> None:
    classic_member(client, "g-refused", "t", None)
    assert "online upgrade is disabled" in refusal_of_upgrade(client, "g-refused")
    told = conversion(client, "g-refused")
    assert told.endswith("group.consumer.migration.policy of its coordinator is disabled.")


def assignor_that_is_gone(client: Client) -> None:
    gone = the(explain_group(client, "g-assignor"), Cause.ASSIGNOR_NOT_SUPPORTED)
    assert gone.severity is Severity.STUCK
    assert gone.evidence == {"assignor": "range", "available": "uniform", "members": 1}
    refused = Member(client, "g-assignor", subscribed_topic_names=["t"], server_assignor="range").heartbeat()
    assert refused.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR


def topics_that_the_member_may_not_see(running: Running) -> None:
    """A member that may not describe a topic is not given it, and --principal says why."""
    for name in ("seen", "seen-not"):
        create_topic(running.admin, NewTopic(name))
    running.allow(Operation.READ, ResourceType.GROUP, "g-hidden")
    running.allow(Operation.READ, ResourceType.TOPIC, "seen")
    Member(running.guest(ThisMachine()), "g-hidden", subscribed_topic_regex="seen.*").has(1)
    told = the(explain_group(running.admin, "g-hidden", principal="User:app"), Cause.REGEX_HIDDEN_TOPICS)
    assert told.severity is Severity.STUCK
    assert "User:app may not Describe seen-not." in told.sentences


class BetweenLooks(ThisMachine):
    """Something happens in the pause between two looks, instead of waiting."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self._happens = happens

    def sleep(self, milliseconds: float) -> None:
        if milliseconds == LOOK_AGAIN_MS:
            self._happens()
        else:
            super().sleep(milliseconds)


def epochs_that_rise_between_two_looks(running: Running) -> None:
    """A guest may describe the group, and not read the log of its coordinator."""
    group, admin = "g-rises", running.admin
    Member(running.another("holder"), group, subscribed_topic_names=["t"]).has(2)
    waiting = Member(running.another("waiting"), group, subscribed_topic_names=["t"])
    wait_until(lambda: [waiting.follow()] and HOLDS in causes(explain_group(admin, group)), "the new target")
    running.allow(Operation.DESCRIBE, ResourceType.TOPIC, "t")
    running.allow(Operation.DESCRIBE, ResourceType.GROUP, group)

    def restart() -> None:
        waiting.heartbeat(LEAVES)
        successor = Member(running.another("successor"), group, subscribed_topic_names=["t"])
        wait_until(lambda: [successor.follow()] and HOLDS in causes(explain_group(admin, group)), "the next target")

    still, moved = running.guest(BetweenLooks(lambda: None)), running.guest(BetweenLooks(restart))
    held = the(explain_group(still, group), HOLDS)
    assert (held.severity, held.since_ms) == (Severity.RISK, None)
    assert held.sentences[2] == "It had to give them up 6 s before, too."
    report = explain_group(moved, group)
    told = the(report, Cause.REBALANCES_REPEATEDLY)
    assert (told.severity, told.since_ms, told.evidence["epochs"]) == (Severity.RISK, None, 2)
    assert told.sentences[1:3] == [
        "Joined since: member 'successor' on 127.0.0.1.",
        "Left since: member 'waiting' on 127.0.0.1.",
    ]
    assert report.happened == []

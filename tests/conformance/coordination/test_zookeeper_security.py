"""ZooKeeper that asks who comes: TLS both ways, logins by SASL and by digest, and nodes that are not for everybody."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from oncelog.cli.main import invoke
from oncelog.coordination.zookeeper.access import ZooKeeperAccess
from oncelog.coordination.zookeeper.tree import ZooKeeperSession, ZooKeeperTree
from oncelog.node.listeners.broker_settings import BrokerConfig
from oncelog.ports import Create, TreeUnavailable
from oncelog.runtime.data.zookeeper_tree import zookeeper_access
from tests.certificates import Authority, Identity
from tests.peers.network_proxy import Cuts, NetworkConditions, Proxy
from tests.peers.zookeeper import ZooKeeper

pytestmark = pytest.mark.slow

TIMEOUT_MS: Final = 6_000
SHORT_MS: Final = 1_000
AUTHORITY: Final = Authority()
PASSWORD: Final = "log-secret-1"
SASL: Final = f'org.apache.zookeeper.server.auth.DigestLoginModule required username="broker" password="{PASSWORD}";'

Properties = dict[str, str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    users = {"broker": PASSWORD, "other": "other-secret"}
    with ZooKeeper(tmp_path_factory.mktemp("secured"), AUTHORITY, users) as server:
        yield server


@pytest.fixture
def tls(tmp_path: Path) -> Callable[..., Properties]:
    """Makes the properties of a connection with TLS."""

    def make(identity: Identity | None = None, authority: Authority = AUTHORITY) -> Properties:
        trusted = tmp_path / "zookeeper.pem"
        trusted.write_text(authority.pem)
        values = {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.truststore.location": str(trusted),
        }
        if identity is not None:
            values["zookeeper.ssl.keystore.location"] = str(identity.write(tmp_path))
        return values

    return make


def access(values: Properties) -> ZooKeeperAccess:
    return zookeeper_access(BrokerConfig(values))


def tree(connect: str, values: Properties, timeout_ms: int = TIMEOUT_MS) -> ZooKeeperTree:
    return ZooKeeperTree(connect, TIMEOUT_MS, timeout_ms, access(values))


@pytest.fixture
def sessions() -> Iterator[list[ZooKeeperSession]]:
    opened: list[ZooKeeperSession] = []
    yield opened
    for session in opened:
        session.close()


def reads_as_anybody(server: ZooKeeper, path: str) -> bytes:
    client = KazooClient(server.connect)
    client.start()
    try:
        value: bytes = client.get(path)[0]
        return value
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_tree_is_used_over_tls(
    server: ZooKeeper, tls: Callable[..., Properties], version: str, sessions: list[ZooKeeperSession]
) -> None:
    path = f"/{uuid4()}"
    values = tls(AUTHORITY.broker()) | {"zookeeper.ssl.enabled.protocols": version}
    sessions += [tree(server.secure_connect + path, values).session() for _ in range(2)]
    nodes = [Create(f"/n{number}", b"x" * 10_000) for number in range(30)]
    position = sessions[0].commit(nodes)
    assert sessions[1].position() == position
    assert len(sessions[1].subtree("/")) == len(nodes)
    assert reads_as_anybody(server, f"{path}/n3") == b"x" * 10_000


@pytest.mark.parametrize("with_tls", [False, True])
def test_a_tree_is_used_on_a_network_that_cuts_every_stream(
    server: ZooKeeper, tls: Callable[..., Properties], with_tls: bool, sessions: list[ZooKeeperSession]
) -> None:
    port = server.secure_port if with_tls else server.port
    proxy = Proxy(("127.0.0.1", port), conditions=NetworkConditions(cuts=Cuts(seed=1)))
    path = f"localhost:{proxy.port}/{uuid4()}"
    sessions += [tree(path, tls(AUTHORITY.broker()) if with_tls else {}).session() for _ in range(2)]
    for number in range(10):
        sessions[0].commit([Create(f"/n{number}-{item}", b"x" * 20_000) for item in range(5)])
    assert len(sessions[1].subtree("/")) == 50
    for session in sessions:
        session.close()
    sessions.clear()
    proxy.close()


class TestRefused:
    def test_a_server_that_the_trust_store_does_not_know(
        self, server: ZooKeeper, tls: Callable[..., Properties]
    ) -> None:
        with pytest.raises(TreeUnavailable, match="its certificate is rejected: unable to get local issuer"):
            tree(server.secure_connect, tls(authority=Authority()), SHORT_MS).session()

    def test_a_server_of_another_name(
        self, server: ZooKeeper, tls: Callable[..., Properties], sessions: list[ZooKeeperSession]
    ) -> None:
        connect = f"127.1:{server.secure_port}/{uuid4()}"  # the same address, and not in the certificate
        with pytest.raises(TreeUnavailable, match="is rejected: Hostname mismatch"):
            tree(connect, tls(), SHORT_MS).session()
        sessions.append(tree(connect, tls() | {"zookeeper.ssl.endpoint.identification.algorithm": ""}).session())

    def test_a_certificate_that_the_server_does_not_know(
        self, server: ZooKeeper, tls: Callable[..., Properties]
    ) -> None:
        values = tls(Authority("Other").broker())
        with pytest.raises(TreeUnavailable, match="within 1 s"):
            tree(server.secure_connect, values, SHORT_MS).session()

    def test_a_port_without_tls(self, server: ZooKeeper, tls: Callable[..., Properties]) -> None:
        with pytest.raises(TreeUnavailable, match="TLS"):
            tree(f"localhost:{server.port}", tls(), SHORT_MS).session()

    def test_a_server_that_takes_connections_and_says_nothing(self, tls: Callable[..., Properties]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            connect = f"localhost:{silent.getsockname()[1]}"
            with pytest.raises(TreeUnavailable, match="does not answer the TLS handshake"):
                ZooKeeperTree(connect, SHORT_MS, SHORT_MS, access(tls())).session()

    def test_a_wrong_password(self, server: ZooKeeper) -> None:
        values = {"oncelog.zookeeper.sasl.jaas.config": SASL.replace(PASSWORD, "wrong")}
        with pytest.raises(TreeUnavailable, match="rejects the user or the password") as refused:
            tree(server.connect, values).session()
        assert "wrong" not in str(refused.value)

    def test_acls_where_nobody_has_said_who_it_is(self, server: ZooKeeper) -> None:
        with pytest.raises(TreeUnavailable, match="has no identity of this broker to put into a node's ACL"):
            ZooKeeperTree(f"{server.connect}/{uuid4()}", TIMEOUT_MS, None, ZooKeeperAccess(owns_nodes=True)).session()


LOGINS: Final = {
    "sasl": {"oncelog.zookeeper.sasl.jaas.config": SASL},
    "digest": {"oncelog.zookeeper.auth.digest": f"broker:{PASSWORD}"},
    "certificate": {},
}


@pytest.mark.parametrize("login", LOGINS)
def test_nodes_belong_to_the_brokers(
    server: ZooKeeper, tls: Callable[..., Properties], login: str, sessions: list[ZooKeeperSession]
) -> None:
    """As in Apache Kafka 3.9: everybody reads, but for credentials, configs of brokers (and our journal)."""
    path = f"/{uuid4()}"
    values = LOGINS[login] | {"zookeeper.set.acl": "true"}
    connect = server.connect
    if login == "certificate":
        connect, values = server.secure_connect, values | tls(AUTHORITY.broker())
    sessions += [tree(connect + path, values).session() for _ in range(2)]
    paths = ["/config", "/config/users", "/config/users/alice", "/config/brokers", "/brokers", "/config/topics"]
    sessions[0].commit([Create(path, b"secret") for path in paths])
    sessions[1].commit([Create("/controller", b"1", ephemeral=True)])
    for readable in ("", "/config", "/config/topics", "/brokers", "/controller"):
        reads_as_anybody(server, path + readable)
    hidden = ("/config/users", "/config/users/alice", "/config/brokers", "/oncelog_tree", "/oncelog_tree/changes")
    for text in (*hidden, "/oncelog_tree/changes/c0000000000"):
        with pytest.raises(NoAuthError):
            reads_as_anybody(server, path + text)
    anybody = KazooClient(server.connect)
    anybody.start()
    for operation in (lambda: anybody.set(f"{path}/brokers", b""), lambda: anybody.delete(f"{path}/config/topics")):
        with pytest.raises(NoAuthError):
            operation()
    anybody.stop()
    anybody.close()
    with pytest.raises(TreeUnavailable, match="does not let this broker read or change the tree"):
        tree(server.connect + path, {"oncelog.zookeeper.auth.digest": "broker:wrong"}).session()


def changes_as_anybody(server: ZooKeeper, path: str) -> bool:
    client = KazooClient(server.connect)
    client.start()
    try:
        client.set(path, b"anybody's")
    except NoAuthError:
        return False
    else:
        return True
    finally:
        client.stop()
        client.close()


def test_a_tree_that_is_there_already_is_closed_and_opened(
    server: ZooKeeper, tmp_path: Path, capsys: pytest.CaptureFixture[str], sessions: list[ZooKeeperSession]
) -> None:
    chroot = f"/{uuid4()}"
    sessions.append(tree(server.connect + chroot, LOGINS["sasl"]).session())
    ours = ["/brokers", "/brokers/ids", "/config", "/config/users", "/config/users/alice"]
    theirs = ["/consumers/old", "/of_another_application"]
    sessions[0].commit([Create(path, b"") for path in (*ours, *theirs)])
    config = tmp_path / "server.properties"

    def run(set_acl: bool, *options: str) -> int:
        values = LOGINS["sasl"] | {"zookeeper.connect": server.connect + chroot, "zookeeper.set.acl": str(set_acl)}
        config.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        return invoke(["security", "zookeeper-acl", "--config", str(config), *options])

    assert run(False) == run(True, "--open") == 2
    assert run(True) == 0
    assert "only their owner may change them now" in capsys.readouterr().out
    assert not any(changes_as_anybody(server, chroot + path) for path in ("", *ours, "/oncelog_tree"))
    assert all(changes_as_anybody(server, chroot + path) for path in theirs)
    with pytest.raises(NoAuthError):
        reads_as_anybody(server, f"{chroot}/config/users/alice")
    reads_as_anybody(server, f"{chroot}/brokers/ids")
    sessions[0].commit([Create("/brokers/topics", b"")])  # brokers go on meanwhile, logged in
    assert run(True) == 0
    assert run(False, "--open", "--json") == 0
    assert all(changes_as_anybody(server, chroot + path) for path in ("", *ours, *theirs, "/brokers/topics"))


def test_without_a_chroot_only_nodes_of_brokers_are_closed(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, sessions: list[ZooKeeperSession]
) -> None:
    with ZooKeeper(tmp_path_factory.mktemp("shared"), AUTHORITY, {"broker": PASSWORD}) as server:
        session = tree(server.connect, LOGINS["sasl"]).session()
        session.commit([Create("/brokers", b""), Create("/of_another_application", b"")])
        config = tmp_path / "server.properties"
        values = LOGINS["sasl"] | {"zookeeper.connect": server.connect, "zookeeper.set.acl": "true"}
        config.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        assert invoke(["security", "zookeeper-acl", "--config", str(config)]) == 0
        assert not changes_as_anybody(server, "/brokers")
        assert changes_as_anybody(server, "/")
        assert changes_as_anybody(server, "/of_another_application")
        session.close()


def test_consumers_nodes_stay_everybodys(server: ZooKeeper, sessions: list[ZooKeeperSession]) -> None:
    """Consumers of before Kafka 1.1 write below /consumers, and log in as nobody."""
    path = f"/{uuid4()}"
    sessions.append(tree(server.connect + path, LOGINS["digest"] | {"zookeeper.set.acl": "true"}).session())
    sessions[0].commit([Create("/consumers/old", b""), Create("/consumers/old/offsets", b"")])
    for node in ("/consumers", "/consumers/old", "/consumers/old/offsets"):
        assert changes_as_anybody(server, path + node)


def test_neither_password_nor_value_is_logged(
    server: ZooKeeper, caplog: pytest.LogCaptureFixture, sessions: list[ZooKeeperSession]
) -> None:
    caplog.set_level(1)
    logging.getLogger("oncelog.zookeeper").setLevel(1)
    values = LOGINS["sasl"] | LOGINS["digest"]
    session = tree(f"{server.connect}/{uuid4()}", values).session()
    sessions.append(session)
    session.commit([Create("/a", b"a-value-of-a-node")])
    assert PASSWORD not in caplog.text
    assert "a-value-of-a-node" not in caplog.text
    assert PASSWORD not in repr(access(values))

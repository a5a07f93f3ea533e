"""The stages of pages: brokers, topics and files that the examples of a page take for granted.

``STAGES`` names a stage for each page with examples that are run; a stage is a context of the page's directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client, Committed, Producer
from oncelog.client.programs.group import commit_offsets
from oncelog.testing import Broker
from tests.interop.admin.lab import WITHOUT_VERIFICATION, ByHand, at
from tests.peers.process import free_ports
from tests.snippets.play import Stage
from tests.unit.schemas.fake_registry import fake_registry
from tests.unit.schemas.memory_registry import MemoryRegistry

BOOTSTRAP: Final = "ONCELOG_BOOTSTRAP_SERVERS"
_SERVE: Final = "begin oncelog serve --data-dir data --listen"
_RUN_MY_SERVICE: Final = """\
from confluent_kafka import Producer

def run_my_service(bootstrap_servers):
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": "service"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("out", b"v")
    producer.commit_transaction(30)
"""


def _populate(servers: str, *names: str, records: int = 5) -> None:
    """Create topics of four partitions, with some records in each partition."""
    with Client(servers) as client, Producer(client) as producer:
        for name in names:
            create_topic(client, NewTopic(name, partitions=4, replication_factor=1))
            for partition in range(4):
                for number in range(records):
                    producer.send(name, b'{"number": %d}' % number, partition=partition)


def _commit(servers: str, group: str, topic: str) -> None:
    """A group that has read the first record of a topic."""
    with Client(servers) as client:
        commit_offsets(client, group, {at(topic): Committed(1)})


@contextmanager
def _of_a_service(directory: Path) -> Iterator[Stage]:
    yield Stage(prelude={"run_my_service": _RUN_MY_SERVICE})


@contextmanager
def _of_tutorial(directory: Path) -> Iterator[Stage]:
    first, second = map(str, free_ports(2))
    yield Stage(
        replaced={"127.0.0.1:9092": f"127.0.0.1:{first}", "9093": second},
        environment={BOOTSTRAP: f"127.0.0.1:{first}"},
    )


@contextmanager
def _of_a_broker(directory: Path) -> Iterator[Stage]:
    port, second, http = map(str, free_ports(3))
    (directory / "server.properties").write_text(
        f"listeners=PLAINTEXT://127.0.0.1:{second}\nlog.dirs=second\n", "utf-8"
    )
    yield Stage(
        replaced={"127.0.0.1:9092": f"127.0.0.1:{port}", "127.0.0.1:8080": f"127.0.0.1:{http}"},
        before={"oncelog produce numbers": "oncelog topic create numbers"},
        environment={BOOTSTRAP: f"127.0.0.1:{port}"},
    )


@contextmanager
def _of_python_clients(directory: Path) -> Iterator[Stage]:
    with Broker() as broker:
        _populate(broker.bootstrap_servers, "out")
        yield Stage(replaced={"localhost:9092": broker.bootstrap_servers})


@contextmanager
def _of_operating(directory: Path) -> Iterator[Stage]:
    port, restored = map(str, free_ports(2))
    serve = f"{_SERVE} 127.0.0.1:{port}\necho ${{background[-1]}} > broker.pid"
    waiting = 'wait "$(cat broker.pid)" || [ $? -lt 2 ]; unset "background[-1]"'
    yield Stage(
        replaced={
            "127.0.0.1:9092": f"127.0.0.1:{restored}",
            "oncelog log restore": f"{waiting}\nexport {BOOTSTRAP}=127.0.0.1:{restored}\noncelog log restore",
        },
        before={"oncelog cluster status": serve},
        environment={BOOTSTRAP: f"127.0.0.1:{port}"},
    )


@contextmanager
def _of_explain(directory: Path) -> Iterator[Stage]:
    with Broker() as broker:
        _populate(broker.bootstrap_servers, "orders")
        _commit(broker.bootstrap_servers, "billing", "orders")
        with Client(broker.bootstrap_servers) as client:
            payments = ByHand(client, "payments-7")
            payments.begin(at("orders", 3))
        yield Stage(
            replaced={"kafka-1:9092": broker.bootstrap_servers, "producer 4711": f"producer {payments.producer_id}"},
            environment={BOOTSTRAP: broker.bootstrap_servers},
        )


@contextmanager
def _of_console(directory: Path) -> Iterator[Stage]:
    [port] = free_ports(1)
    (directory / "reports").mkdir()
    (directory / "reports" / "monday.json").write_text("{}", "utf-8")
    (directory / "data").mkdir()
    with Broker() as broker:
        (directory / "live.properties").write_text("client.id=live\n", "utf-8")
        yield Stage(
            replaced={
                "kafka-1:9092,kafka-2:9092": broker.bootstrap_servers,
                "kafka-1:9092": broker.bootstrap_servers,
                "localhost:9092": broker.bootstrap_servers,
                "oncelog console ": f"stop\noncelog console --listen 127.0.0.1:{port} ",
                "/var/lib/kafka/data": "data",
            },
            left_out={"oncelog audit": "starts a JVM; docs/audit.md runs it"},
            environment={BOOTSTRAP: broker.bootstrap_servers},
        )


@contextmanager
def _of_group_consumers(directory: Path) -> Iterator[Stage]:
    with Broker() as broker:
        _populate(broker.bootstrap_servers, "flights")
        _commit(broker.bootstrap_servers, "watchers", "flights")
        yield Stage(environment={BOOTSTRAP: broker.bootstrap_servers})


@contextmanager
def _of_share_groups(directory: Path) -> Iterator[Stage]:
    with Broker() as broker:
        servers = broker.bootstrap_servers
        with Client(servers) as client:
            create_topic(client, NewTopic("jobs", partitions=1, replication_factor=1))
        yield Stage(replaced={"localhost:9092": servers}, environment={BOOTSTRAP: servers})


@contextmanager
def _of_hanging_transactions(directory: Path) -> Iterator[Stage]:
    [port] = free_ports(1)
    with Broker({**WITHOUT_VERIFICATION}) as broker:
        _populate(broker.bootstrap_servers, "orders", records=548)
        _commit(broker.bootstrap_servers, "my-service", "orders")
        with Client(broker.bootstrap_servers) as client:
            hung = ByHand(client, "order-service-3", timeout_ms=1000)
            hung.begin(at("orders", 3))
            hung.end()
            assert hung.write(at("orders", 3)) == 550
        yield Stage(
            replaced={
                "kafka-1:9092": broker.bootstrap_servers,
                "550 …": "550 --force --yes",
                "--prometheus 9464 --prometheus-address 0.0.0.0": f"--prometheus {port}",
            },
            environment={BOOTSTRAP: broker.bootstrap_servers},
        )


@contextmanager
def _of_dead_jobs(directory: Path) -> Iterator[Stage]:
    with Broker({"transaction.two.phase.commit.enable": "true"}) as broker:
        _populate(broker.bootstrap_servers, "out")
        with Client(broker.bootstrap_servers) as client:
            sink = ByHand(client, "sink-0-1", two_phase=True)
            sink.begin(at("out"))
        identity = f'"sink-0-1", {sink.producer_id}, {sink.epoch}'
        yield Stage(replaced={"kafka-1:9092": broker.bootstrap_servers, '"sink-0-1", 4711, 3': identity})


@contextmanager
def _of_mirror(directory: Path) -> Iterator[Stage]:
    with Broker() as first, Broker() as second, Broker() as target:
        for source in (first, second):
            _populate(source.bootstrap_servers, "orders")
            _commit(source.bootstrap_servers, "billing", "orders")
        copied = (
            f"oncelog mirror --source a={first.bootstrap_servers} --source b={second.bootstrap_servers} "
            f"--target {target.bootstrap_servers} --topics 'orders|flights.*' --groups '.*' --exit"
        )
        yield Stage(
            replaced={
                "kafka-a:9092": first.bootstrap_servers,
                "kafka-b:9092": second.bootstrap_servers,
                "kafka-c:9092": target.bootstrap_servers,
                "a=A --target c=C": f"a={first.bootstrap_servers} --target c={target.bootstrap_servers}",
            },
            before={"oncelog mirror verify": f"stop\n{copied}"},
        )


@contextmanager
def _of_old_clients(directory: Path) -> Iterator[Stage]:
    [port] = free_ports(1)
    yield Stage(replaced={"oncelog serve": f"oncelog serve --listen 127.0.0.1:{port}"})


@contextmanager
def _of_old_logs(directory: Path) -> Iterator[Stage]:
    from tests.old_logs import message

    log = directory / "events-0"
    log.mkdir()
    (log / "00000000000000000000.kafka").write_bytes(b"".join(message(b"event %d" % number) for number in range(3)))
    with Broker() as broker:
        yield Stage(
            replaced={"/var/kafka-0.7/logs": str(directory), "localhost:9092": broker.bootstrap_servers},
        )


@contextmanager
def _of_acls(directory: Path) -> Iterator[Stage]:
    with Broker(
        {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
    ) as broker:
        _populate(broker.bootstrap_servers, "orders")
        yield Stage(environment={BOOTSTRAP: broker.bootstrap_servers})


@contextmanager
def _of_security(directory: Path) -> Iterator[Stage]:
    while True:
        [port] = free_ports(1)
        if port % 2 == 0:
            break
    yield Stage(
        replaced={
            "security init secured": f"security init secured --port {port}",
            "user add alice ": "user add alice --password-env ALICE ",
        },
        environment={"ALICE": "alice-secret"},
    )


@contextmanager
def _of_cluster(directory: Path) -> Iterator[Stage]:
    ports = free_ports(1)[0]
    while ports > 65_000:
        ports = free_ports(1)[0]
    addresses = {f"127.0.0.1:{9092 + number}": f"127.0.0.1:{ports + number}" for number in range(3)}
    healthy = "until oncelog cluster status | grep -q 'brokers 3 of 3 up'; do sleep 0.2; done\n"
    fenced = "until { oncelog cluster status || true; } | grep -q '^ *%d .*fenced'; do sleep 0.2; done\n"
    single = (
        f"begin oncelog serve --data-dir oncelog-data --listen 127.0.0.1:{ports}\n"
        "oncelog topic create flights --partitions 3\nstop\n"
    )

    def ended(broker: int, signal: str) -> str:
        """End a broker of this directory, and wait until the cluster has noticed."""
        files = f"$(grep -lsz 'oncelog-cluster/broker-{broker}.properties' /proc/[0-9]*/cmdline)"
        here = '[ "$(readlink "${file%/*}/cwd")" != "$PWD" ] || [ "${file%/*}" = /proc/$$ ]'
        # The search may have found itself, which is over.
        kill = f'kill -{signal} "$(basename "${{file%/*}}")" 2> /dev/null || true'
        return f"for file in {files}; do {here} || {kill}; done\n{fenced % broker}"

    yield Stage(
        replaced={"oncelog cluster up": f"oncelog cluster up --base-port {ports}", **addresses},
        before={
            "oncelog serve --config oncelog-cluster": healthy + ended(2, "KILL"),
            "oncelog cluster adopt oncelog-data\noncelog cluster up": f"{healthy}stop\nrm -r oncelog-cluster\n{single}",
            "--brokers 1,2,3 --replication-factor 3 --wait": healthy,
            "$ oncelog cluster status": healthy + ended(2, "KILL"),
            "--brokers 1,2,3 --wait\n": f"begin oncelog serve --config oncelog-cluster/broker-2.properties\n{healthy}",
            "oncelog cluster decommission 3 --dry-run": "oncelog topic reassign --topic flights --brokers 1,2 "
            "--replication-factor 2 --wait",
            "oncelog cluster unregister 3": ended(3, "TERM"),
        },
        environment={BOOTSTRAP: f"127.0.0.1:{ports}"},
    )


@contextmanager
def _of_schemas(directory: Path) -> Iterator[Stage]:
    with Broker() as broker, fake_registry(MemoryRegistry()) as registry:
        yield Stage(
            replaced={"http://localhost:8081": registry.url, "localhost:9092": broker.bootstrap_servers},
            environment={BOOTSTRAP: broker.bootstrap_servers},
        )


STAGES: Final[dict[str, Callable[[Path], AbstractContextManager[Stage]]]] = {
    "README.md": _of_a_service,
    "docs/broker.md": _of_a_broker,
    "docs/cluster.md": _of_cluster,
    "docs/console.md": _of_console,
    "docs/dead-jobs.md": _of_dead_jobs,
    "docs/explain.md": _of_explain,
    "docs/from-testcontainers.md": _of_a_service,
    "docs/group-consumers.md": _of_group_consumers,
    "docs/hanging-transactions.md": _of_hanging_transactions,
    "docs/mirror.md": _of_mirror,
    "docs/old-clients.md": _of_old_clients,
    "docs/old-logs.md": _of_old_logs,
    "docs/operating.md": _of_operating,
    "docs/python-client.md": _of_python_clients,
    "docs/schemas.md": _of_schemas,
    "docs/security-acls.md": _of_acls,
    "docs/security.md": _of_security,
    "docs/share-groups.md": _of_share_groups,
    "docs/tutorial.md": _of_tutorial,
}

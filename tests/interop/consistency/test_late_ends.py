"""A request of one V1 transaction that arrives in the next: commits a part of it, loses it, or brings it back.

``docs/transactions-v1.md`` has the table. All Python clients use Transactions V1.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from oncelog.admin.configs import ResourceType, alter_configs, describe_configs
from oncelog.client.blocking import Client
from oncelog.testing import Broker
from tests.interop.consistency.late_ends import (
    PRODUCERS,
    History,
    Step,
    aborts,
    commits,
    goes_on,
    goes_on_there,
    late_abort,
    late_commit,
    late_partition,
    run,
)
from tests.interop.test_audit import audited
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.late_requests import LateRequests
from tests.peers.process import free_ports
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
VERIFICATION: Final = "transaction.partition.verification.enable"
REFUSES: Final = "oncelog.transaction.late.requests.refuse"
_numbers = itertools.count()


@contextmanager
def late_broker(directory: Path | None = None, **config: str) -> Iterator[LateRequests]:
    """A broker of ours behind a proxy."""
    port = free_ports(1)[0]
    proxy = LateRequests(("127.0.0.1", port))
    try:
        advertised = {"advertised.listeners": f"PLAINTEXT://{proxy.bootstrap_servers}"}
        with Broker({**advertised, **config}, port=port, data_dir=directory):
            yield proxy
    finally:
        proxy.close()


@contextmanager
def late_kafka() -> Iterator[LateRequests]:
    """Apache Kafka behind a proxy: the reference, or the release of ONCELOG_KAFKA_VERSION."""
    port = free_ports(1)[0]
    proxy = LateRequests(("127.0.0.1", port))
    try:
        with ApacheKafka(port=port, advertised=("127.0.0.1", proxy.port)):
            yield proxy
    finally:
        proxy.close()


@pytest.fixture(scope="module")
def ours() -> Iterator[LateRequests]:
    with late_broker() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def kafka() -> Iterator[LateRequests]:
    with late_kafka() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def refusing() -> Iterator[LateRequests]:
    with late_broker(**{REFUSES: "true"}) as proxy:
        yield proxy


def verify_partitions(proxy: LateRequests, enabled: bool) -> None:
    """Set it while the broker runs."""
    value = str(enabled).lower()
    with Client(proxy.bootstrap_servers) as client:
        alter_configs(client, ResourceType.BROKER, "", change={VERIFICATION: value})
    # A broker applies the change a moment after it has accepted it.
    wait_until(lambda: configured(proxy) == value, "the setting")


def configured(proxy: LateRequests) -> str | None:
    with Client(proxy.bootstrap_servers) as client:
        [row] = describe_configs(client, ResourceType.BROKER, "1", [VERIFICATION])
    return row.value


class Expected:
    """The table: what each history leaves. ``refused``: the client gets an error in the second transaction."""

    def __init__(self, history: History, *steps: Step, visible: str, refused: bool, held: bool = False) -> None:
        self.history, self.steps = history, steps
        self.outcome = refused, set(visible.split()), held

    def check(self, proxy: LateRequests, client: str) -> None:
        """Make the history, and compare."""
        result = run(proxy, client, f"late-{next(_numbers)}", self.history, *self.steps)
        assert (result.refused is not None, result.visible, result.is_held) == self.outcome, result


BROUGHT_BACK = Expected(late_commit, goes_on, aborts, visible="first second", refused=False)
"""The second transaction is aborted, without an error, and its first record is committed."""
LOST = Expected(late_abort, goes_on, commits, visible="third", refused=False)
"""The second transaction is committed, without an error, and its first record is aborted."""
ALWAYS: Final = {
    "brought-back": BROUGHT_BACK,
    "lost": LOST,
    "committed-early": Expected(late_commit, aborts, visible="first second", refused=True),
    "aborted-early": Expected(late_abort, commits, visible="", refused=True),
}
VERIFIED: Final = {
    "part-committed": Expected(late_commit, goes_on_there, commits, visible="first second", refused=True),
    "part-aborted": Expected(late_abort, goes_on_there, commits, visible="", refused=True),
}
UNVERIFIED: Final = {
    "part-committed": Expected(late_commit, goes_on_there, commits, visible="first second", refused=False, held=True),
    "part-aborted": Expected(late_abort, goes_on_there, commits, visible="", refused=True, held=True),
}


@pytest.mark.parametrize("client", PRODUCERS)
def test_a_late_commit_commits_a_part_of_the_next_transaction_which_its_client_aborts(
    ours: LateRequests, client: str
) -> None:
    BROUGHT_BACK.check(ours, client)


def test_a_late_abort_loses_a_part_of_the_next_transaction_which_its_client_commits(ours: LateRequests) -> None:
    LOST.check(ours, "librdkafka")


def test_late_partitions_open_a_transaction_that_no_client_knows(ours: LateRequests) -> None:
    result = run(ours, "kafka-python", "late-partition", late_partition)
    assert (result.state, result.visible) == ("Ongoing", {"first"})


def every_history(proxy: LateRequests, client: str, verified: bool) -> None:
    verify_partitions(proxy, verified)
    for expected in (ALWAYS | (VERIFIED if verified else UNVERIFIED)).values():
        expected.check(proxy, client)
    assert run(proxy, client, f"late-{next(_numbers)}", late_partition).state == "Ongoing"


@pytest.mark.integration
@pytest.mark.parametrize("verified", [True, False])
@pytest.mark.parametrize("client", PRODUCERS)
def test_every_history_here(ours: LateRequests, client: str, verified: bool) -> None:
    every_history(ours, client, verified)


@pytest.mark.java
@pytest.mark.parametrize("verified", [True, False])
@pytest.mark.parametrize("client", PRODUCERS)
def test_every_history_on_apache_kafka(kafka: LateRequests, client: str, verified: bool) -> None:
    every_history(kafka, client, verified)


@pytest.mark.parametrize("client", PRODUCERS)
def test_a_broker_that_refuses_late_requests_keeps_transactions_apart(refusing: LateRequests, client: str) -> None:
    Expected(late_commit, goes_on, aborts, visible="first", refused=False).check(refusing, client)


@pytest.mark.integration
@pytest.mark.parametrize("client", PRODUCERS)
def test_no_history_where_late_requests_are_refused(refusing: LateRequests, client: str) -> None:
    Expected(late_abort, goes_on, commits, visible="second third", refused=False).check(refusing, client)
    Expected(late_commit, goes_on_there, commits, visible="first second fourth", refused=False).check(refusing, client)
    Expected(late_abort, aborts, visible="", refused=False).check(refusing, client)
    assert run(refusing, client, f"late-{next(_numbers)}", late_partition).state == "CompleteCommit"


@pytest.mark.integration
def test_the_audit_finds_what_was_written_on_and_cannot_find_the_rest(tmp_path: Path) -> None:
    """Complete histories leave the records of an application that ended the transaction there."""
    with late_broker(tmp_path, **{VERIFICATION: "false"}) as proxy:
        for name, expected in (ALWAYS | UNVERIFIED).items():
            run(proxy, "kafka-python", name, expected.history, *expected.steps)
    findings = {(finding.topic, finding.kind) for finding in audited(tmp_path).findings}
    assert findings == {(name, kind) for name in UNVERIFIED for kind in ("hanging", "late-write")}

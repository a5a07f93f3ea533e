"""How ``oncelog consume --group`` ends: in order, and without commits of records that it could not print."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import IO

import pytest

from oncelog.admin.groups import committed_offsets, describe_group, list_groups
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client, Producer
from oncelog.testing import Broker
from tests.waiting import HANG_S

pytestmark = pytest.mark.slow

CONSUME = (sys.executable, "-c", "from oncelog.cli.main import run; run()", "consume", "t", "--group", "g")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as client:
        create_topic(client, NewTopic("t", partitions=1))
        with Producer(client) as producer:
            for number in range(3):
                producer.send("t", b"%d" % number)
        yield client
    broker.reset()


def environment(broker: Broker) -> dict[str, str]:
    return os.environ | {"ONCELOG_BOOTSTRAP_SERVERS": broker.bootstrap_servers}


def start(
    broker: Broker,
    *options: str,
    stdout: int | IO[bytes] = subprocess.PIPE,
    before: Callable[[], object] | None = None,
) -> subprocess.Popen[bytes]:
    command = [*CONSUME, *options]
    return subprocess.Popen(
        command,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=environment(broker),
        preexec_fn=before,  # type: ignore[arg-type]
    )


def members(client: Client) -> int:
    """The number of the group's members; 0, too, where there is no group."""
    return next((len(describe_group(client, "g").members) for row in list_groups(client) if row.group == "g"), 0)


def committed(client: Client) -> int | None:
    """The group's committed offset, None where there is none."""
    return next((offset.offset for offset in committed_offsets(client, "g").values()), None)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_ends_it_leaves_the_group(broker: Broker, client: Client, number: signal.Signals) -> None:
    process = start(broker)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(3)] == [b"0\n", b"1\n", b"2\n"]
    assert members(client) == 1
    process.send_signal(number)
    if number == signal.SIGHUP:  # the system and a shell both send it
        process.send_signal(number)
    _, errors = process.communicate(timeout=HANG_S)
    assert (process.returncode, errors) == (130, b"")
    assert (members(client), committed(client)) == (0, 3)


def test_nohup_is_heeded(broker: Broker, client: Client) -> None:
    process = start(broker, "--count", "4", before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(3)] == [b"0\n", b"1\n", b"2\n"]
    process.send_signal(signal.SIGHUP)
    with Producer(client) as producer:
        producer.send("t", b"last")
    assert process.communicate(timeout=HANG_S) == (b"last\n", b"")
    assert process.returncode == 0


def test_nothing_is_committed_that_finds_the_disk_full(broker: Broker, client: Client) -> None:
    with open("/dev/full", "wb") as full:
        process = start(broker, stdout=full)
        _, errors = process.communicate(timeout=HANG_S)
    assert (process.returncode, errors) == (1, b"oncelog: cannot write the output: no space left on device\n")
    assert (members(client), committed(client)) == (0, None)


def test_nothing_is_committed_whose_reader_is_gone(broker: Broker, client: Client) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        process = start(broker, stdout=pipe)
    _, errors = process.communicate(timeout=HANG_S)
    assert (process.returncode, errors) == (0, b"")
    assert (members(client), committed(client)) == (0, None)


@pytest.mark.parametrize("redirected", [">&-", "1</dev/null"])
def test_nothing_is_committed_where_nothing_can_be_printed(broker: Broker, client: Client, redirected: str) -> None:
    command = ["sh", "-c", f'exec "$@" {redirected}', "sh", *CONSUME]
    done = subprocess.run(command, stderr=subprocess.PIPE, env=environment(broker), check=False, timeout=HANG_S)
    assert (done.returncode, done.stderr) == (1, b"oncelog: cannot write the output: bad file descriptor\n")
    assert (members(client), committed(client)) == (0, None)

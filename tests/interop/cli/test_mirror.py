"""oncelog mirror, as people type it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.testing import Broker
from tests.interop.cli.conftest import Run

pytestmark = pytest.mark.slow


@pytest.fixture
def other() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def clusters(oncelog_broker: Broker, other: Broker) -> list[str]:
    return ["--source", f"a={oncelog_broker.bootstrap_servers}", "--target", other.bootstrap_servers]


def at(broker: Broker) -> list[str]:
    return ["-b", broker.bootstrap_servers]


def test_a_mirror_its_offsets_and_its_verification(run: Run, clusters: list[str], other: Broker) -> None:
    run("topic", "create", "t", "-p", "1")
    run("produce", "t", stdin=b"one\ntwo\nthree\n")
    mirrored = run("mirror", *clusters, "--topics", "t", "--groups", ".*", "--exit", "--json")
    assert mirrored.code == 0, mirrored.err
    last = json.loads(mirrored.out.splitlines()[-1])
    assert (last["source"], last["final"], last["records"], last["lag"]) == ("a", True, 3, 0)
    assert run("consume", "a.t", "-e", *at(other)).out == "one\ntwo\nthree\n"
    again = run("mirror", *clusters, "--topics", "t", "--exit")
    assert (again.code, again.out) == (0, "")
    assert "a: 0 records in 0 transactions" in again.err

    run("consume", "t", "--group", "g", "-c", "2")
    shown = run("mirror", "offsets", *clusters, "--json")
    (row,) = json.loads(shown.out)
    assert (row["group"], row["source_offset"], row["translated"], row["state"]) == ("g", 2, 2, "movable")
    assert "to be committed" in run("mirror", "offsets", *clusters).out
    assert "synced" in run("mirror", "offsets", *clusters, "--apply").out
    assert run("consume", "a.t", "--group", "g", "-c", "1", *at(other)).out == "three\n"
    assert "goes on there" in run("mirror", "offsets", *clusters).out

    verified = run("mirror", "verify", *clusters)
    assert verified.code == 0
    assert "3 records compared, 0 of 1 range differ" in verified.out


def test_a_configuration_file_has_what_options_have(
    run: Run, oncelog_broker: Broker, other: Broker, tmp_path: Path
) -> None:
    run("topic", "create", "t", "-p", "1")
    run("produce", "t", stdin=b"one\n")
    lines = [
        f"source.a.bootstrap.servers={oncelog_broker.bootstrap_servers}",
        "source.a.client.id=mine",
        f"target.bootstrap.servers={other.bootstrap_servers}",
        "topics=t",
        "naming=identity",
    ]
    config = tmp_path / "mirror.properties"
    config.write_text("\n".join(lines))
    assert run("mirror", "--config", str(config), "--exit", "--quiet") == (0, "", "")
    assert run("consume", "t", "-e", *at(other)).out == "one\n"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--target", "h:1", "--topics", "t"], 2, "Usage: oncelog mirror"),
        (["--source", "a=h:1", "--topics", "t"], 2, "no target: name it with --target"),
        (["--source", "a=h:1", "--target", "h:2"], 2, "no topics: say which with --topics"),
        (["--source", "a.b=h:1", "--target", "h:2", "--topics", "t"], 2, "--source 'a.b': a name for a source has"),
        (["--source", "a=h:1", "--target", "a=h:2", "--topics", "t"], 2, "are both named 'a'"),
        (["--source", "a=h:1", "--target", "h:2", "--topics", "("], 2, "--topics '(' is not a regular expression"),
        (["--source", "a=h:1", "--target", "h:2", "--topics", "t", "--naming", "x"], 2, "not one of prefix, identity"),
        (["--source", "a=h:1", "--target", "h:2", "--topics", "t", "-X", "typo=1"], 2, "'typo' is not a setting"),
    ],
)
def test_what_is_wrong_is_said(run: Run, arguments: list[str], code: int, text: str) -> None:
    ran = run("mirror", *arguments)
    assert ran.code == code
    assert text in ran.out + ran.err


def test_verification_says_that_there_was_no_mirror(run: Run, clusters: list[str]) -> None:
    ran = run("mirror", "verify", *clusters)
    assert ran.code == 1
    assert "no mirror from 'a' was ever run to this target" in ran.err


def test_a_source_that_is_not_there_is_an_error(run: Run, other: Broker) -> None:
    ran = run("mirror", "--source", "a=127.0.0.1:1", "--target", other.bootstrap_servers, "--topics", "t", "--exit")
    assert ran.code == 1
    assert "no broker at 127.0.0.1:1" in ran.err


def test_what_the_target_refuses_is_told_and_the_rest_copied(run: Run, clusters: list[str], other: Broker) -> None:
    run("topic", "create", "m", "-p", "1")
    run("produce", "m", stdin=b"one\n" + b"x" * 20_000 + b"\ntwo\n")
    run("topic", "create", "a.m", "-p", "1", "-c", "max.message.bytes=10000", *at(other))
    ran = run("mirror", *clusters, "--topics", "m", "--no-configs", "--exit", "--json")
    assert ran.code == 1
    assert "m-0 of a stands at offset 1: a.m-0 at the target refuses the record: larger than" in ran.err
    (row,) = json.loads(ran.out.splitlines()[-1])["refused"]
    assert (row["topic"], row["partition"], row["offset"], row["stands"]) == ("m", 0, 1, True)
    assert run("consume", "a.m", "-e", *at(other)).out == "one\n"


def test_both_sides_may_be_secured_and_lists_go_over(run: Run, tmp_path: Path) -> None:
    with Broker(security="scram") as source, Broker(security="scram") as target:
        options = ["--topics", "t", "--acls", "--exit", "--quiet"]
        for name, broker in (("source", source), ("target", target)):
            broker.add_user("mirror")
            broker.allow("mirror", "all")
            given = broker.client_config("mirror", java=True)
            (tmp_path / name).write_text("\n".join(f"{key}={value}" for key, value in given.items()))
        options += ["--source-config", f"a={tmp_path / 'source'}", "--target-config", str(tmp_path / "target")]
        admin = ["--command-config", str(tmp_path / "source"), *at(source)]
        source.add_user("reader")
        run("topic", "create", "t", "-p", "1", *admin)
        run("produce", "t", *admin, stdin=b"one\n")
        source.allow("reader", "read", topic="t")
        ran = run("mirror", "--source", f"a={source.bootstrap_servers}", *options, "--target", target.bootstrap_servers)
        assert ran == (0, "", "")
        present = ["--command-config", str(tmp_path / "target"), *at(target)]
        assert run("consume", "a.t", "-e", *present).out == "one\n"
        (row,) = json.loads(run("acl", "list", "--topic", "a.t", "--json", *present).out)
        assert (row["entry"]["principal"], row["entry"]["operation"]) == ("User:reader", "READ")

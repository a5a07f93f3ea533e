"""``log import`` against the in-process broker: what arrives, what is told, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.interop.cli.conftest import Ran, Run
from tests.old_logs import GZIP, SNAPPY, file_path, message, message_set, write_log

pytestmark = pytest.mark.slow


def summary(ran: Ran) -> dict[str, Any]:
    """The last line of ``--json``."""
    row: dict[str, Any] = json.loads(ran.out.splitlines()[-1])
    return row


def values(run: Run, topic: str, partition: int = 0) -> list[str]:
    """The values in a partition of a topic, in order."""
    ran = run("consume", topic, "-p", str(partition), "--from", "beginning", "-e", "--json")
    assert ran.code == 0, ran.err
    return [json.loads(line)["payload"] for line in ran.out.splitlines()]


def sent(partition: int, count: int = 20) -> list[bytes]:
    """Messages of a partition."""
    return [b"" if number % 7 == 3 else b"%d:%d" % (partition, number) for number in range(count)]


def entries(messages: list[bytes]) -> list[bytes]:
    """Entries of all kinds that hold these messages."""
    inner = message_set([message(item, magic=0) for item in messages[10:12]], SNAPPY)
    return [
        *(message(one, magic=number % 2) for number, one in enumerate(messages[:5])),
        message_set([message(item) for item in messages[5:10]], GZIP),
        message_set([inner, *(message(item) for item in messages[12:15])], GZIP),
        *(message(item) for item in messages[15:]),
    ]


def test_partitions_arrive_in_order_once_and_growth_later(run: Run, tmp_path: Path) -> None:
    write_log(tmp_path / "clicks-0", entries(sent(0)), file_bytes=60)
    write_log(tmp_path / "clicks_2", entries(sent(2)), start=5_000, digits=11)
    ran = run("log", "import", str(tmp_path), "--to", "clicks", "--json")
    assert (ran.code, summary(ran)["messages"], summary(ran)["bad"]) == (0, 40, 0)
    assert summary(ran)["bytes"] == sum(map(len, sent(0) + sent(2)))
    assert [values(run, "clicks", number) for number in range(3)] == [
        [item.decode() for item in sent(0)],
        [],
        [item.decode() for item in sent(2)],
    ]
    assert summary(run("log", "import", str(tmp_path), "--to", "clicks", "--json"))["messages"] == 0
    last = sorted((tmp_path / "clicks-0").iterdir())[-1]
    with last.open("ab") as file:
        file.write(message(b"later"))
    ran = run("log", "import", str(tmp_path), "--to", "clicks")
    assert (ran.code, ran.out) == (0, "1 message of 5 bytes imported into clicks\n")
    assert values(run, "clicks")[-1] == "later"
    assert "nothing new" in run("log", "import", str(tmp_path), "--to", "clicks").out


def test_times_are_the_files_or_none(run: Run, tmp_path: Path) -> None:
    write_log(tmp_path / "a-0", [message(b"x")])
    os.utime(file_path(tmp_path / "a-0", 0), (1_300_000_000, 1_300_000_000))
    ran = run("log", "import", str(tmp_path), "--to", "with")
    assert "retention.ms=-1" in ran.err
    assert run("log", "import", str(tmp_path), "--to", "without", "--timestamps", "none", "-z", "zstd").code == 0
    times = [
        json.loads(run("consume", topic, "--from", "beginning", "-e", "--json").out)["ts"]
        for topic in ("with", "without")
    ]
    assert times == [1_300_000_000_000, -1]
    assert run("topic", "create", "kept").code == 0
    assert "To keep them" in run("log", "import", str(tmp_path), "--to", "kept").err


def damaged(directory: Path) -> tuple[Path, int]:
    """Two partitions, the first with a damaged entry and an unfinished tail; the file, and the offset of the damage."""
    offsets = write_log(directory / "d-0", [message(b"a"), message(b"b"), message(b"c"), message(b"cut")[:-1]])
    write_log(directory / "d-1", [message(b"e")])
    path = file_path(directory / "d-0", 0)
    data = bytearray(path.read_bytes())
    data[offsets[2] - 1] ^= 1
    path.write_bytes(data)
    return path, offsets[1]


def test_fail_names_the_place_and_leaves_a_prefix(run: Run, tmp_path: Path) -> None:
    path, offset = damaged(tmp_path)
    ran = run("log", "import", str(tmp_path), "--to", "d", "--json")
    assert (ran.code, summary(ran)["messages"], summary(ran)["bad"]) == (1, 2, 1)
    assert f"{path}: offset {offset}: 11 bytes cannot be read" in ran.err
    assert values(run, "d") == ["a"]
    again = run("log", "import", str(tmp_path), "--to", "d")
    assert (again.code, again.err.count(str(path))) == (1, 1), again.err
    assert values(run, "d") == ["a"]


def test_stop_ends_the_partition_and_skip_goes_on(run: Run, tmp_path: Path) -> None:
    path, offset = damaged(tmp_path)
    ran = run("log", "import", str(tmp_path), "--to", "d", "--on-corruption", "stop", "--json")
    assert (ran.code, summary(ran)["messages"], summary(ran)["bad"]) == (0, 2, 1)
    assert [values(run, "d", number) for number in range(2)] == [["a"], ["e"]]
    ran = run("log", "import", str(tmp_path), "--to", "d", "--on-corruption", "skip", "--json")
    assert (ran.code, summary(ran)["messages"], summary(ran)["bad"]) == (0, 1, 2), ran.out
    places = [item for item in map(json.loads, ran.out.splitlines()) if item["type"] == "bad"]
    assert [(place["file"], place["offset"], place["size"], place["is_tail"]) for place in places] == [
        (str(path), offset, 11, False),
        (str(path), offset + 22, 12, True),
    ]
    assert values(run, "d") == ["a", "c"]
    with path.open("ab") as file:
        file.write(message(b"cut")[-1:])
    assert summary(run("log", "import", str(tmp_path), "--to", "d", "--json"))["messages"] == 1
    assert values(run, "d") == ["a", "c", "cut"]


def test_an_unfinished_tail_is_an_error_after_everything_else(run: Run, tmp_path: Path) -> None:
    write_log(tmp_path / "d-0", [message(b"a"), message(b"cut")[:-1]])
    write_log(tmp_path / "d-1", [message(b"b")] * 50, file_bytes=60)
    ran = run("log", "import", str(tmp_path), "--to", "d", "--json")
    assert (ran.code, summary(ran)["messages"], summary(ran)["bad"]) == (1, 51, 1)
    assert "unfinished entry: 12 of 13 bytes" in ran.err


def test_another_brokers_log_of_the_same_name_is_known_for_another(run: Run, tmp_path: Path) -> None:
    write_log(tmp_path / "one" / "d-0", [message(b"of broker one"), message(b"x")])
    write_log(tmp_path / "two" / "d-0", [message(b"of broker two"), message(b"x"), message(b"y")])
    assert run("log", "import", str(tmp_path / "one"), "--to", "d").code == 0
    ran = run("log", "import", str(tmp_path / "two"), "--to", "d")
    assert ran.code == 1
    assert "is not the log that was imported into d as 'd'" in ran.err
    assert run("log", "import", str(tmp_path / "two"), "--to", "d", "--as", "broker two").code == 0
    assert values(run, "d") == ["of broker one", "x", "of broker two", "x", "y"]


def test_a_topic_that_was_made_anew_is_imported_anew(run: Run, tmp_path: Path) -> None:
    write_log(tmp_path / "d-0", [message(b"a")])
    for _ in range(2):
        assert run("log", "import", str(tmp_path), "--to", "d").code == 0
        assert values(run, "d") == ["a"]
        assert run("topic", "delete", "d").code == 0


def test_one_partition_alone_and_one_log_of_several(run: Run, tmp_path: Path) -> None:
    for log in ("a", "b"):
        write_log(tmp_path / f"{log}-1", [message(log.encode())])
    assert "several logs (a, b)" in run("log", "import", str(tmp_path), "--to", "t").err
    assert "has no log 'c'; it has a, b" in run("log", "import", str(tmp_path), "--to", "t", "--log", "c").err
    assert run("log", "import", str(tmp_path), "--to", "b").code == 0
    assert values(run, "b", 1) == ["b"]
    assert run("log", "import", str(tmp_path / "a-1"), "--to", "t").code == 0
    assert values(run, "t", 1) == ["a"]


def test_what_is_refused_says_what_to_do(run: Run, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no log of Kafka 0.7" in run("log", "import", str(empty), "--to", "t").err
    assert run("log", "import", str(tmp_path / "nowhere"), "--to", "t").code == 1
    write_log(tmp_path / "logs" / "d-3", [message(b"a")])
    assert run("topic", "create", "small", "-p", "2").code == 0
    ran = run("log", "import", str(tmp_path / "logs"), "--to", "small")
    assert (ran.code, "oncelog topic alter --partitions 4 small" in ran.err) == (1, True)
    write_log(tmp_path / "large" / "d-0", [message(b"a"), message(bytes(1_100_000))])
    ran = run("log", "import", str(tmp_path / "large"), "--to", "large")
    assert (ran.code, "-c max.message.bytes=" in ran.err) == (1, True)

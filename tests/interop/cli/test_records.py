"""produce and consume, as people who know kcat use them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client
from oncelog.client.blocking.producer import Producer
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.testing import Broker
from tests.interop.cli.conftest import Run


@pytest.fixture
def topic(run: Run) -> str:
    assert run("topic", "create", "t", "-p", "2").code == 0
    return "t"


def test_lines_in_lines_out(run: Run, topic: str) -> None:
    assert run("produce", topic, "-p", "0", stdin=b"one\ntwo\nthree") == (0, "", "")
    assert run("consume", topic, "-e") == (0, "one\ntwo\nthree\n", "")


def test_keys_headers_times_and_tombstones(run: Run, topic: str) -> None:
    stdin = b"k:v\nk:\n"
    options = ["-K", ":", "-Z", "", "-H", "a=1", "-H", "b", "-T", "2013-06-01T00:00:00Z", "-z", "zstd"]
    assert run("produce", topic, *options, stdin=stdin).code == 0
    form = "%t/%o %T %k=%s %K %S %h%%\\x21\\n"
    shown = run("consume", topic, "-e", "-f", form, "-Z", "NULL").out
    assert shown == "t/0 1370044800000 k=v 1 1 a=1,b=NULL%!\nt/1 1370044800000 k=NULL 1 -1 a=1,b=NULL%!\n"


def test_json_goes_round(run: Run, topic: str) -> None:
    run("produce", topic, "-K", ":", "-H", "h=1", stdin=b"k:v\n\xff:\xfe\n")
    lines = run("consume", topic, "-e", "--json").out
    assert run("topic", "create", "copy", "-p", "2").code == 0
    assert run("produce", "copy", "--json", stdin=lines.encode()).code == 0

    def essence(text: str) -> list[dict[str, object]]:
        rows = [json.loads(line) for line in text.splitlines()]
        return sorted(({k: v for k, v in row.items() if k != "topic"} for row in rows), key=str)

    assert essence(run("consume", "copy", "-e", "--json").out) == essence(lines)
    assert {row.get("payload_encoding") for row in essence(lines)} == {None, "base64"}


@pytest.mark.parametrize("options", [[], ["--base64"]])
def test_json_goes_round_with_every_byte(run: Run, oncelog_broker: Broker, options: list[str]) -> None:
    headers = (("bin", b"\xff\xfe\0\1"), ("txt", b"abc"), ("null", None), ("txt", b"//4AAQ=="), ("", b""))
    records = [
        (b"\xffk", b"v\0", headers),
        (None, None, ()),
        (b"", b"", (("only", b"\x80"),)),
        (b"k", b'{"amount":1.10}', (("text", b"x"),)),
    ]
    for topic in ("src", "dst"):
        assert run("topic", "create", topic, "-p", "1").code == 0
    with Client(oncelog_broker.bootstrap_servers) as client:
        with Producer(client) as producer:
            for key, value, pairs in records:
                producer.send("src", value, key=key, partition=0, headers=pairs, timestamp_ms=5)
        lines = run("consume", "src", "-e", "--json", *options).out
        assert run("produce", "dst", "-p", "0", "--json", *options, stdin=lines.encode()).code == 0
        partition = TopicPartition(TopicName("dst"), 0)
        copies = [item for part in client.fetch({partition: 0}, until={partition: 4}) for item in read_fetched(part)]
    assert [(record.key, record.value, tuple(record.headers)) for record in copies] == records
    assert {item.timestamp for item in copies} == {5}


@pytest.mark.parametrize(
    "payload",
    ['{"amount":12345678901234567.89}', '{"x":1e400,"x":-0,"y":[1.10,1E5]}', "0.10", "123456789012345678901", "true"],
)
def test_a_payload_that_is_json_keeps_its_digits(run: Run, topic: str, payload: str) -> None:
    assert (
        run("produce", topic, "-J", stdin=f'{{"payload": {payload}, "headers": ["h", {payload}]}}\n'.encode()).code == 0
    )
    assert run("consume", topic, "-e", "-f", "%s %h").out == f"{payload} h={payload}"


def test_envelopes_of_before_and_of_others_are_taken(run: Run, topic: str) -> None:
    line = b'\xef\xbb\xbf{"payload":"v","headers":["a","//4AAQ==","b",null]}\n'
    assert run("produce", topic, "-J", stdin=line).code == 0
    assert run("consume", topic, "-e", "-f", "%s %h", "-Z", "NULL").out == "v a=//4AAQ==,b=NULL"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"payload":"v","ts":-5}', "ts is -5; a producer sends whole milliseconds since 1970"),
        ('{"payload":"v","ts":9223372036854775808}', "ts is 9223372036854775808"),
        ('{"payload":"v","ts":true}', "ts is true"),
        ('{"payload":"v","ts":1.5}', "ts is 1.5"),
        ('{"payload":NaN}', "not JSON: NaN is not JSON"),
        ('{"payload":"v","headers":["a"]}', "headers must be a list of names and values in turn"),
        ('{"payload":"v","headers":[1,"a"]}', "the name of header 1 is 1; a name must be text"),
        ('{"payload":"v","headers":["a","b"],"headers_encoding":[]}', "one entry for each of the 1 headers"),
        ('{"payload":"v","headers":["a","*"],"headers_encoding":["base64"]}', "not base64"),
    ],
)
def test_lines_that_are_no_records_are_named(run: Run, topic: str, line: str, reason: str) -> None:
    ran = run("produce", topic, "-J", stdin=line.encode())
    assert ran.code == 1
    assert f"record 1 of the input: {reason}" in ran.err or reason in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "time_text", ["1970-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z", "1960-01-01", "0001-01-02T00:00:00Z"]
)
def test_times_before_1970_are_the_beginning(run: Run, topic: str, time_text: str) -> None:
    run("produce", topic, "-p", "0", "-T", "2013-06-01", stdin=b"1\n2\n3\n")
    assert run("consume", topic, "-e", "--from", time_text).out == "1\n2\n3\n"
    assert run("consume", topic, "-e", "--to", time_text).out == ""
    run("consume", topic, "-e", "-g", "g")
    ran = run("group", "reset-offsets", "g", "--topic", topic, "--to-datetime", time_text, "--execute", "--json")
    assert ran.code == 0
    assert {row["target"] for row in json.loads(ran.out)["offsets"]} == {0}


@pytest.mark.parametrize("time_text", ["1969-12-31T23:59:59.999Z", "@9223372036854775808", "@99999999999999999999"])
def test_a_record_cannot_have_such_a_time(run: Run, topic: str, time_text: str) -> None:
    ran = run("produce", topic, "-T", time_text, stdin=b"1\n")
    assert ran.code == 2
    assert "Invalid value for --timestamp" in ran.err


def test_batches_become_as_small_as_the_topic_takes_them(run: Run, tmp_path: Path) -> None:
    run("topic", "create", "small", "-p", "1", "-c", "max.message.bytes=2000")
    lines = b"".join(b"%d\n" % number for number in range(3_000))
    path = tmp_path / "lines"
    path.write_bytes(lines)
    assert run("produce", "small", str(path)) == (0, "", "")
    assert run("consume", "small", "-e").out.encode() == lines


@pytest.mark.parametrize(
    ("config", "bad", "reason"),
    [
        ("max.message.bytes=10000", b"k:" + b"x" * 20_000, "MESSAGE_TOO_LARGE"),
        ("cleanup.policy=compact", b":keyless", "INVALID_RECORD"),
    ],
)
def test_a_refused_record_takes_no_neighbour_with_it(run: Run, config: str, bad: bytes, reason: str) -> None:
    run("topic", "create", "small", "-p", "1", "-c", config)
    refused = run("produce", "small", "-K", ":", "-Z", "", stdin=b"k:a\n" + bad + b"\nk:b\n" + bad + b"\nk:c\n")
    assert refused.code == 1
    assert reason in refused.err
    assert "the broker refused 2 records; all others are written" in refused.err
    assert run("consume", "small", "-e").out == "a\nb\nc\n"


def test_base64_both_ways(run: Run, topic: str) -> None:
    assert run("produce", topic, "--base64", stdin=b"/wA=\n").code == 0
    assert run("consume", topic, "-e", "--base64").out == "/wA=\n"
    refused = run("produce", topic, "--base64", stdin=b"***\n")
    assert refused.code == 1
    assert "record 1 of the input: not base64" in refused.err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["-o", "beginning"], "0123456789"),
        (["-o", "7"], "789"),
        (["-o", "-2"], "89"),
        (["-o", "end"], ""),
        (["-c", "3"], "012"),
        (["-o", "@1005"], "56789"),
        (["--from", "1970-01-01T00:00:01.003Z", "--to", "@1006"], "345"),
    ],
)
def test_where_to_begin_and_stop(run: Run, topic: str, options: list[str], expected: str) -> None:
    lines = "\n".join(json.dumps({"payload": str(n), "ts": 1000 + n}) for n in range(10))
    assert run("topic", "alter", topic, "-c", "retention.ms=-1").code == 0
    assert run("produce", topic, "--json", "-p", "1", stdin=lines.encode()).code == 0
    assert run("consume", topic, "-p", "1", "-e", "-f", "%s", *options).out == expected


def test_whole_files_are_records(run: Run, topic: str, tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "file"
    path.write_bytes(b"a\nb\n")
    assert run("produce", topic, "--whole", str(path)).code == 0
    assert run("consume", topic, "-e", "-f", "%S").out == "4"
    missing = run("produce", topic, str(path) + ".missing")
    assert (missing.code, missing.err.count("\n")) == (1, 1)


@pytest.mark.slow
def test_a_group_goes_on_where_it_stopped(run: Run, topic: str) -> None:
    run("produce", topic, "-p", "0", stdin=b"a\nb\nc\n")
    assert run("consume", topic, "-G", "g", "-c", "2").out == "a\nb\n"
    assert run("consume", topic, "-G", "g", "-e").out == "c\n"
    assert run("consume", topic, "-G", "g", "-e").out == ""


@pytest.mark.slow
def test_without_commit_a_group_stays_where_it_is(run: Run, topic: str) -> None:
    run("produce", topic, "-p", "0", stdin=b"a\n")
    for _ in range(2):
        assert run("consume", topic, "-G", "g", "-e", "--no-commit").out == "a\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["consume", "missing", "-e"], "topic 'missing'"),
        (["consume", "t", "-p", "9", "-e"], "partition 9"),
        (["consume", "t", "-o", "99", "-c", "1"], "OFFSET_OUT_OF_RANGE"),
        (["produce", "t", "-p", "9"], "partition 9"),
        (["consume", "t", "-G", "", "-e"], "INVALID_GROUP_ID"),
        (["consume", "x" * 40_000], "40000 bytes"),
        (["produce", "bad/name"], "bad/name"),
    ],
)
def test_failures_are_one_line_and_exit_code_1(run: Run, topic: str, arguments: list[str], says: str) -> None:
    ran = run(*arguments, stdin=b"x\n")
    assert (ran.code, ran.err.count("\n")) == (1, 1), ran
    assert says in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume"],
        ["consume", "t", "-o", "yesterdayish"],
        ["consume", "t", "-f", "%q"],
        ["consume", "t", "-o", "stored"],
        ["consume", "t", "-G", "g", "-p", "0"],
        ["consume", "t", "-b", "a:b:c"],
        ["produce", "t", "-D", ""],
        ["produce", "t", "-z", "rar"],
        ["topic", "create", "t", "-c", "novalue"],
        ["group", "reset-offsets", "g"],
        ["nonsense"],
    ],
)
def test_usage_errors_are_one_line_and_exit_code_2(run: Run, arguments: list[str]) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.err.count("\n"), ran.out) == (2, 1, ""), ran


def test_json_without_a_payload_is_refused_instead_of_written_as_a_tombstone(run: Run, topic: str) -> None:
    refused = run("produce", topic, "--json", stdin=b'{"payload": null}\n{"id": 7, "value": "v"}\n')
    assert refused.code == 1
    assert "record 2 of the input: no 'payload' (the record's value) in it, only 'id', 'value'" in refused.err
    assert run("consume", topic, "-e", "-f", "%S;").out == "-1;"


def test_a_directory_is_no_input(run: Run, topic: str, tmp_path: Path) -> None:
    assert run("produce", topic, str(tmp_path)).err == f"oncelog: {tmp_path}: is a directory\n"

"""kcat's format strings, the JSON envelope, offsets and times as typed, and cutting a stream into records."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.base.units import INT64_MAX, KIB
from oncelog.cli.records import input_records
from oncelog.cli.records.format import FormatError, compile_format, json_envelope, unescape
from oncelog.cli.records.input_records import InputError, Parsing, parse, split_stream
from oncelog.cli.support.offset_or_time import MomentError, Start, parse_start, parse_time_ms
from oncelog.client.machine.consumed_records import ConsumedRecord

RECORD = ConsumedRecord("t", 3, 42, 1000, "create", b"k", b"val", (("h", b"1"), ("n", None)), 0)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("%t/%p@%o", b"t/3@42"),
        ("%k=%s\\n", b"k=val\n"),
        ("%K %S %R", b"1 3 \x00\x00\x00\x03"),
        ("%h|%T%%", b"h=1,n=|1000%"),
        ("\\x00\\xff\\t\\\\", b"\x00\xff\t\\"),
        ("ü%s", "üval".encode()),
        ("", b""),
    ],
)
def test_format_strings(form: str, expected: bytes) -> None:
    assert compile_format(form)(RECORD) == expected


@pytest.mark.parametrize("form", ["%q", "%", "\\q", "\\x0g", "\\"])
def test_wrong_format_strings_are_refused(form: str) -> None:
    with pytest.raises(FormatError):
        compile_format(form)


def test_null_has_length_minus_one_and_a_text_of_choice() -> None:
    empty = RECORD._replace(key=None, value=None)
    assert compile_format("%k %K %s %S %R", null=b"NULL")(empty) == b"NULL -1 NULL -1 \xff\xff\xff\xff"


def test_fields_are_bytes_in_a_file_and_cannot_act_on_a_terminal() -> None:
    hostile = RECORD._replace(
        topic="t", key=b"k\n\x1b[2J", value="\x9b2Jgrün\n\tline 2\r".encode() + b"\xff", headers=(("\x1b", b"\n\x80"),)
    )
    form = "%k|%s|%h"
    assert compile_format(form)(hostile) == b"k\n\x1b[2J|\xc2\x9b2Jgr\xc3\xbcn\n\tline 2\r\xff|\x1b=\n\x80"
    shown = compile_format(form, for_terminal=True)(hostile).decode()
    assert shown == "k\\n\\x1b[2J|\\x9b2Jgrün\n\tline 2\\r\\xff|\\x1b=\\n\\x80"
    assert compile_format("%s", for_terminal=True, encode_base64=True)(hostile) == compile_format(
        "%s", encode_base64=True
    )(hostile)
    assert json_envelope(hostile).rstrip(b"\n").decode().isprintable()


@pytest.mark.slow
@given(st.none() | st.binary(), st.none() | st.binary(), st.lists(st.tuples(st.text(), st.none() | st.text())))
def test_what_consume_prints_as_json_is_what_produce_reads(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, str | None]]
) -> None:
    encoded = tuple((name, None if text is None else text.encode()) for name, text in headers)
    record = RECORD._replace(key=key, value=value, headers=encoded)
    for as_base64 in (False, True):
        if as_base64 and headers:
            continue
        line = json_envelope(record, as_base64)
        parsed = parse(line, Parsing(None, None, (), None, True, False, None, None))
        assert (parsed.key, parsed.value, parsed.headers, parsed.timestamp_ms) == (key, value, encoded, 1000)


@pytest.mark.parametrize("line", [b"", b"[]", b"{", b'{"headers": ["a"]}', b'{"ts": "now"}', b'{"headers": [1, 2]}'])
def test_json_that_is_no_record_is_refused(line: bytes) -> None:
    with pytest.raises(InputError):
        parse(line, Parsing(None, None, (), None, True, False, None, None))


def test_json_values_that_are_not_strings_stay_json() -> None:
    parsed = parse(json.dumps({"payload": {"a": [1, None]}}).encode(), Parsing(None, None, (), None, True, False, 1, 5))
    assert (parsed.value, parsed.partition, parsed.timestamp_ms) == (b'{"a":[1,null]}', 1, 5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", Start(keyword="beginning")),
        ("earliest", Start(keyword="beginning")),
        ("End", Start(keyword="end")),
        ("stored", Start(keyword="stored")),
        ("7", Start(offset=7)),
        ("-7", Start(before_end=7)),
        ("@1003", Start(timestamp_ms=1003)),
        ("s@1003", Start(timestamp_ms=1003)),
        ("1970-01-01T00:00:01.003Z", Start(timestamp_ms=1003)),
        ("1970-01-01T01:00:00+01:00", Start(timestamp_ms=0)),
    ],
)
def test_where_to_begin(text: str, expected: Start) -> None:
    assert parse_start(text) == expected


@pytest.mark.parametrize("text", ["", "--1", "1.5", "tomorrow", "@", "2013-13-01", "²"])
def test_what_is_neither_offset_nor_time_is_refused(text: str) -> None:
    with pytest.raises(MomentError, match=r"is not a time \(.*\), nor an offset"):
        parse_start(text)


def test_where_only_a_time_may_be_given_no_offsets_are_proposed() -> None:
    with pytest.raises(MomentError, match=r"^'beginning' is not a time \(@MILLISECONDS, [^()]*\)$"):
        parse_time_ms("beginning")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1969-12-31T23:59:59.999Z", -1),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ("@9223372036854775807", INT64_MAX),
    ],
)
def test_times_of_all_years(text: str, milliseconds: int) -> None:
    assert parse_time_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["0001-01-01T00:00", "9999-12-31T23:59:59", "@9223372036854775808", "@" + "9" * 5_000])
def test_what_is_beyond_all_times_is_said(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "XXX-14" if text.startswith("0") else "XXX+14")
    time.tzset()
    try:
        with pytest.raises(MomentError, match=r"out of range|is larger than"):
            parse_time_ms(text)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["9223372036854775808", "-" + "9" * 5_000])
def test_offsets_fit_in_a_long(text: str) -> None:
    with pytest.raises(MomentError, match="is larger than"):
        parse_start(text)


def test_a_time_without_zone_is_local() -> None:
    assert parse_time_ms("2013-06-01") % 60_000 == 0


@pytest.mark.slow
@given(
    st.lists(st.binary(max_size=5).filter(lambda item: b"|" not in item)),
    st.integers(1, 9),
    st.sampled_from([b"|", b"||", b"|\n||"]),
)
def test_a_stream_is_cut_at_the_delimiter_however_it_arrives(pieces: list[bytes], step: int, delimiter: bytes) -> None:
    reading, writing = os.pipe()
    data = delimiter.join(pieces)

    def feed() -> None:
        for at in range(0, len(data), step):
            os.write(writing, data[at : at + step])
        os.close(writing)

    thread = threading.Thread(target=feed)
    thread.start()
    result = [item for item in split_stream(reading, delimiter, 1000) if item is not None]
    thread.join()
    os.close(reading)
    assert result == (pieces[:-1] if pieces and not pieces[-1] else pieces)


def test_a_long_record_takes_time_by_its_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_records, "_CHUNK_BYTES", KIB)
    path = tmp_path / "long"
    path.write_bytes(b"x" * (2_000 * KIB) + b"\ny")
    with path.open("rb", buffering=0) as file:
        began = time.thread_time()
        while os.read(file.fileno(), KIB):
            pass
        plain = time.thread_time() - began
        file.seek(0)
        began = time.thread_time()
        assert [len(record or b"") for record in split_stream(file.fileno(), b"\n", 0)] == [2_000 * KIB, 1]
        taken = time.thread_time() - began
    assert taken < 30 * plain + 0.05, "putting it together anew for each chunk takes 100 times as long"


def test_a_pause_is_told_once() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"a\nb")
    stream = split_stream(reading, b"\n", 1)
    assert next(stream) == b"a"
    assert next(stream) is None
    os.write(writing, b"c\n")
    assert next(stream) == b"bc"
    os.close(writing)
    assert list(stream) in ([], [None])
    os.close(reading)


def test_escapes_need_no_record() -> None:
    assert unescape("a\\tb\\x41") == b"a\tbA"

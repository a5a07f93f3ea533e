"""Filters: a record matches by key, value, header or JSON field, and no needle passes over a record that matches."""

from __future__ import annotations

import random

import pytest

from oncelog.console.query import BadQuery, Query
from oncelog.console.records.matching import records_with
from oncelog.console.records.record_filter import RecordFilter, path_of
from oncelog.console.records.record_query import filter_of
from oncelog.records.batch import HEADER_SIZE, read_header
from oncelog.records.builder import build_batch
from oncelog.records.record import Record

RECORDS = [
    Record(0, 5, b"Order-1", b'{"a": {"b": "Tea", "n": 1.50}, "list": [{"sku": 7}, {"sku": 8}]}'),
    Record(1, 5, b"order-2", '{"a": {"b": "GRÜNER tee"}}'.encode()),
    Record(2, 5, None, b'{"a": {"b": "t\\u0065a"}}', (("Trace", b"abc-DEF"), ("empty", None))),
    Record(3, 5, b"\xff", b"tea", (("trace", b"other"),)),
    Record(4, 5, b"", b'\x00\x00\x00\x00\x07{"a": {"b": null, "ok": true}}'),
    Record(5, 5, b"x", b"[" * 3000),
    Record(6, 5, b"y", b'{"a.b": "dotted", "a": "tea"}'),
]
BATCH = build_batch(RECORDS)


def parsed(**parameters: str) -> RecordFilter:
    return filter_of(Query(parameters))


def offsets(record_filter: RecordFilter) -> list[int]:
    return [record.offset for record in records_with(BATCH[HEADER_SIZE:], read_header(BATCH), record_filter)]


@pytest.mark.parametrize(
    ("parameters", "matches"),
    [
        ({"key": "ORDER"}, [0, 1]),
        ({"key": "ORDER", "case": "1"}, []),
        ({"key": "order", "case": "1"}, [1]),
        ({"value": "tea"}, [0, 3, 6]),
        ({"q": "grüner TEE"}, [1]),
        ({"q": "GRÜNER tee", "case": "1"}, [1]),
        ({"q": "grüner", "case": "1"}, []),
        ({"q": "ff", "q_format": "hex"}, [3]),
        ({"q": "trace", "place": "header"}, [2, 3]),
        ({"header": "trace"}, [2, 3]),
        ({"header": "trace=abc-def"}, [2]),
        ({"header": "trace~OTH"}, [3]),
        ({"header": "trace!=other"}, [2]),
        ({"header": "trace=abc-def", "case": "1"}, []),
        ({"header": "empty=null"}, [2]),
        ({"field": "a.b=tea"}, [0, 2]),
        ({"field": "$.a.b = TEA"}, [0, 2]),
        ({"field": "a.b=tea", "case": "1"}, [2]),
        ({"field": "a.b~grün"}, [1]),
        ({"field": "a.b!=tea"}, [1, 4]),
        ({"field": "a.b"}, [0, 1, 2, 4]),
        ({"field": "a.b=null"}, [4]),
        ({"field": "a.ok=true"}, [4]),
        ({"field": "a.n=1.5"}, [0]),
        ({"field": "a.n=15e-1"}, [0]),
        ({"field": "a.n!=2"}, [0]),
        ({"field": "list.sku=8"}, [0]),
        ({"field": "list[0].sku=8"}, []),
        ({"field": "$['a.b']=dotted"}, [6]),
        ({"key": "order", "field": "a.b~tee", "value": "grüner"}, [1]),
        ({"key": "order", "header": "trace"}, []),
    ],
    ids=str,
)
def test_records_match_by_all_conditions(parameters: dict[str, str], matches: list[int]) -> None:
    record_filter = parsed(**parameters)
    assert [record.offset for record in RECORDS if record_filter.matches(record)] == matches
    assert offsets(record_filter) == matches


def test_a_needle_passes_over_no_record_that_matches() -> None:
    letters = "aAeéÉß€\U0001f375 -1"
    for seed in range(60):
        random_source = random.Random(seed)
        records = [
            Record(
                number,
                5,
                "".join(random_source.choices(letters, k=3)).encode(),
                f'{{"f": "{"".join(random_source.choices(letters, k=4))}"}}'.encode(),
                (("".join(random_source.choices("hHé", k=2)), b"v"),),
            )
            for number in range(20)
        ]
        batch = build_batch(records)
        text = "".join(random_source.choices(letters, k=random_source.randint(1, 2)))
        for name in ("q", "key", "value", "header", "field"):
            condition = f"f~{text}" if name == "field" else text
            record_filter = parsed(**{name: condition, "case": random_source.choice(("", "1"))})
            matched = [record.offset for record in records_with(batch[HEADER_SIZE:], read_header(batch), record_filter)]
            assert matched == [record.offset for record in records if record_filter.matches(record)], (
                seed,
                name,
                condition,
            )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("a[0]", b'{"a": ["x"]}'),
        ("a[0]=5", b'{"a": [5]}'),
        ("a[3]!=y", b'{"a": [1, 2, 4, "x"]}'),
        ("a.7", b'{"a": {"7": 1}}'),
        ("['a/b']", rb'{"a\/b": 1}'),
        ("""['a"b']""", rb'{"a\"b": 1}'),
    ],
)
def test_a_needle_is_no_index_and_nothing_that_json_escapes(field: str, value: bytes) -> None:
    record = Record(0, 5, None, value)
    batch = build_batch([record])
    record_filter = parsed(field=field)
    assert record_filter.matches(record)
    assert [*records_with(batch[HEADER_SIZE:], read_header(batch), record_filter)] == [record]


def test_long_values_are_compared_in_pieces() -> None:
    record_filter = parsed(value="GRÜẞE")
    for before in (0, 255 * 1024 - 3, 256 * 1024 - 5, 256 * 1024 - 1, 256 * 1024, 700_000):
        value = b"x" * before + "grüsse".encode() + b"y" * 300_000
        assert record_filter.matches(Record(0, 5, None, value)), before
    assert not record_filter.matches(Record(0, 5, None, b"x" * 600_000))


def test_paths() -> None:
    assert path_of("$.a.b") == path_of("a.b") == ("a", "b")
    assert path_of("a[0]['c d'][\"e\"].f") == ("a", "0", "c d", "e", "f")
    assert path_of("") == path_of("$") == path_of("a..") == path_of("a[") == ()
    for text in ("=x", "a[=x", "."):
        with pytest.raises(BadQuery, match="path"):
            parsed(field=text)
    with pytest.raises(BadQuery, match="state"):
        parsed(state="half")
    assert not parsed()
    assert parsed(state="aborted").allows("aborted")
    assert not parsed(state="aborted").allows("committed")

"""Properties files are read as ``java.util.Properties`` reads them, and written as it reads them."""

from __future__ import annotations

import random

import pytest

from oncelog.base.notation.java_properties import (
    PropertiesError,
    decode_properties,
    escape_key,
    escape_value,
    parse_properties,
)
from tests.conformance.properties import corpus

HALF = "half a character"


def outcome(text: str) -> dict[str, str] | str:
    try:
        return parse_properties(text)
    except PropertiesError as error:
        return str(error)


def differs(loaded: corpus.Loaded) -> bool:
    """True if ours reads something else, but for the two things in which it does so on purpose."""
    got, expected = outcome(loaded.text), loaded.values
    if isinstance(got, str):
        return expected is not None and not (HALF in got and "\\ud83d" in loaded.text)
    # A file that ends in a lone backslash: Java makes an empty key of it, unless CR and LF follow.
    ends_in_backslash = loaded.text.rstrip("\r\n").endswith("\\")
    return got != expected and not (ends_in_backslash and expected == {**got, "": ""})


def test_the_recorded_files_are_read_as_java_has_read_them():
    recorded = list(corpus.read(corpus.CORPUS.read_text("ascii")))
    assert len(recorded) == 600
    assert [loaded for loaded in recorded if differs(loaded)] == []


@pytest.mark.java
@pytest.mark.slow
def test_files_of_this_day_are_read_as_java_reads_them():
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    assert [loaded for loaded in corpus.read(corpus.load_in_java(corpus.draw(seed, 20_000))) if differs(loaded)] == []


@pytest.mark.java
@pytest.mark.slow
def test_java_reads_what_is_written():
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    values = [text for text in corpus.draw(seed, 5000) if "\\ud83d" not in text]
    written = [f"{escape_key(text + 'k')}={escape_value(text)}" for text in values]
    loaded = list(corpus.read(corpus.load_in_java(written)))
    assert [item.values for item in loaded] == [{text + "k": text} for text in values]
    assert all(line.isascii() for line in written)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sasl.password=p\\ud83d\\ude00w", {"sasl.password": "p😀w"}),
        ("a=1\x852\u20283\x0b4\x1c5\x1e6\nb=7", {"a": "1\x852\u20283\x0b4\x1c5\x1e6", "b": "7"}),
        ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        ("  \f\ta \t: =b ", {"a": "=b "}),
        ("a\u00a0b=c", {"a\u00a0b": "c"}),
        ("a\\\n  # b=c", {"a#": "b=c"}),
        ("=value", {"": "value"}),
        ("a=\\\n\\\n   b", {"a": "b"}),
    ],
)
def test_lines_blanks_and_escapes(text: str, expected: dict[str, str]):
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u00g1", "\\u=b", "a=1\nb=\\u١٢٣٤"])
def test_a_broken_number_of_a_character_is_refused_with_its_line(text: str):
    with pytest.raises(PropertiesError, match=f"line {text.count(chr(10)) + 1}: .*four hexadecimal digits"):
        parse_properties(text)


@pytest.mark.parametrize("text", ["a=\\ud83d", "a=\\ude00\\ud83d", "\\udcff=b"])
def test_half_a_character_is_refused(text: str):
    with pytest.raises(PropertiesError, match=f"line 1: {HALF}"):
        parse_properties(text)


def test_a_file_is_utf_8_or_what_java_takes_it_for():
    assert decode_properties("a=ü😀".encode()) == "a=ü😀"
    assert decode_properties("\ufeffa=b".encode()) == "a=b"
    assert decode_properties("a=ü".encode("latin-1")) == "a=ü"

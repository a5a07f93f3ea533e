"""JSON text that is laid out anew keeps its tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.base.notation import json_text

NUMBERS = ["12345678901234567.89", "1e400", "-0", "-0.0", "1.10", "1E+2", "100000000000000000000000", "1" * 5_000]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.sampled_from([None, 1, 7]), st.booleans())
def test_the_layout_is_that_of_the_standard_library(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert json_text.compacted(text) == json.dumps(value, separators=(",", ":"), ensure_ascii=ascii_only)
    assert json.loads(json_text.indented(text)) == value
    if not ascii_only:
        assert json_text.indented(text) == json.dumps(value, indent=2, ensure_ascii=False)


@pytest.mark.parametrize("number", NUMBERS)
def test_digits_order_and_equal_names_stay(number: str) -> None:
    text = f'{{"b": {number},"a":[{number}, {{}}, []],"b":null}}'
    assert json_text.compacted(text) == text.replace(" ", "")
    expected = f'{{\n  "b": {number},\n  "a": [\n    {number},\n    {{}},\n    []\n  ],\n  "b": null\n}}'
    assert json_text.indented(text) == expected
    assert json_text.members(text) == {"b": "null", "a": f"[{number},{{}},[]]"}
    assert json_text.elements(f' [{number}, "a,]" , {{"x" : [1,2]}}]') == [number, '"a,]"', '{"x":[1,2]}']


def test_escapes_are_shown_as_characters_if_those_can_be_seen() -> None:
    assert json_text.indented(r'"\u00e4\/"') == '"ä/"'
    for odd in (r'"\u202e"', r'"\ud83c"', r'"\u0000"', r'"a\nb"'):
        assert json_text.indented(odd) == odd


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "{'a':1}", '{"a":1}{', "[1,]", "01", "", "\ufeff1", '"\n"'])
def test_other_texts_are_refused(text: str) -> None:
    for function in (json_text.check, json_text.compacted, json_text.indented):
        with pytest.raises(ValueError, match=r".+"):
            function(text)


def test_a_deep_text_does_not_become_a_thousand_times_as_large() -> None:
    deep = "[" * 400 + "1," * 5_000 + "1" + "]" * 400
    assert len(json_text.indented(deep)) < 100 * len(deep)
    assert json_text.compacted(json_text.indented(deep)) == deep


def test_empty_objects_and_arrays_have_no_parts() -> None:
    assert json_text.members(" {} ") == {}
    assert json_text.elements("[ ]") == []

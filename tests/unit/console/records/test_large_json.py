"""JSON in pieces is JSON as a whole."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from oncelog.console.records import large_json
from oncelog.console.records.large_json import LargeBytes, is_text, json_pieces

TEXTS = ["", "a", 'ä"\\\n\u2028', "\U0001f375" * 7, "x" * 20 + "\U0001f375"]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_json, "PIECE", 6)


def whole(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace")


@pytest.mark.parametrize("text", TEXTS)
def test_text_and_base64_are_what_dumps_writes(text: str) -> None:
    data = text.encode()
    assert is_text(data)
    assert b"".join(LargeBytes(data, is_text=True).pieces()) == whole(text)
    assert b"".join(LargeBytes(data, is_text=False).pieces()) == whole(base64.b64encode(data).decode())
    assert all(len(piece) <= 36 for piece in LargeBytes(data, is_text=True).pieces())


def test_rows_with_them_are_what_dumps_writes_of_rows_without() -> None:
    data = "ä\U0001f375".encode() * 5
    plain: dict[str, Any] = {"a": 1, "ä": [None, True, 1.5, "\ud83c"], "e": {}, "l": [], "h": [{"k": "v"}]}
    row = plain | {"value": LargeBytes(data, is_text=True), "more": [{"b": LargeBytes(data, is_text=False)}]}
    text = {"value": data.decode(), "more": [{"b": base64.b64encode(data).decode()}]}
    assert b"".join(json_pieces(row)) == whole(plain | text)


@pytest.mark.parametrize("data", [b"\xff", b"a" * 20 + b"\xc3", b"\xed\xa0\x80", "ä".encode()[:1]])
def test_what_is_no_text_is_found_in_pieces(data: bytes) -> None:
    assert not is_text(data)

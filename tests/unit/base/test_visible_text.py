from __future__ import annotations

import json

import pytest

from oncelog.base.notation.visible_text import visible, visible_json, visible_lines

PLANES = (range(0x3100), range(0xD7F0, 0xE010), range(0xFE00, 0x10000), range(0xE0000, 0xE0100))
CHARACTERS = [chr(number) for plane in PLANES for number in plane]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders-7", "orders-7"),
        ("größe 日本語 αβγ 🚚 é", "größe 日本語 αβγ 🚚 é"),
        ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
        ("\x9b2J", "\\x9b2J"),
        ("a\nUser:root\r\tb\x00\x7f", "a\\nUser:root\\r\\tb\\x00\\x7f"),
        ("a\u202eb\u2066c\u200e", "a\\u202eb\\u2066c\\u200e"),
        ("a\u2028b\u2029c\x85d\x0b\x0c", "a\\u2028b\\u2029c\\x85d\\x0b\\x0c"),
        ("\udc80\ud83d", "\\udc80\\ud83d"),
        ("\U000e0041\ufeff\u200b", "\\U000e0041\\ufeff\\u200b"),
        ("C:\\x1b", "C:\\x1b"),
    ],
)
def test_a_line_shows_what_is_not_printable_as_python_writes_it(text: str, expected: str) -> None:
    assert visible(text) == expected


def test_no_character_acts_on_a_terminal_or_ends_a_line() -> None:
    for character in CHARACTERS:
        shown = visible(character)
        assert shown.isprintable()
        assert len(shown.splitlines()) == 1
        assert (shown == character) is character.isprintable()


def test_lines_keep_line_ends_and_tabs() -> None:
    assert visible_lines("a\tb\n\x1b[2Jc\n\nd\r\n") == "a\tb\n\\x1b[2Jc\n\nd\\r\n"


def test_json_has_the_same_value_and_no_character_that_acts_on_a_terminal() -> None:
    value = {
        "".join(character for character in CHARACTERS if not "\ud800" <= character <= "\udfff"): [
            "\udc80",
            "\ud83dx",
            "日本語 🚚",
        ]
    }
    document = visible_json(json.dumps(value, ensure_ascii=False, indent=2))
    assert json.loads(document) == value
    assert all(line.isprintable() for line in document.split("\n"))
    assert "日本語 🚚" in document
    assert visible_json('"\x9b\x7f\u202e\u2028\U000e0041"') == '"\\u009b\\u007f\\u202e\\u2028\\udb40\\udc41"'

"""The counts of words that say nothing fall, and the record of them is the one that the tree needs."""

from __future__ import annotations

from tests.checks.words import RECORD, finds_of, names_of_template, problems, read_record, write_record

MODULE = '''"""Nobody knows what this is."""
def look(one):
    # What comes here is told later.
    raise ValueError("bad one")
'''


def kinds(source: str) -> list[str]:
    return sorted(find.kind for find in finds_of("module.py", source) if find.count)


def test_names_sentences_and_messages_that_say_nothing_are_found() -> None:
    assert kinds(MODULE) == ["docstrings", "identifiers", "messages", *["phrases"] * 4]


def test_names_in_templates_count_and_texts_do_not() -> None:
    source = "<p>one of each</p>{% for one in rows %}{{ one.name | shown('one') }}{% endfor %}{# one #}"
    assert [find.text for find in names_of_template("t.html", source)] == ["one", "one"]


def test_plain_words_are_not() -> None:
    plain = 'def commit(transaction):\n    raise ValueError(f"{transaction} is not open; call begin() first")\n'
    assert kinds(plain) == []


def test_a_count_that_rises_is_refused_with_its_places() -> None:
    result = [("core", find) for find in finds_of("module.py", MODULE)]
    risen = problems(result, {("core", "docstrings"): 5, ("core", "phrases"): 4, ("core", "messages"): 1})
    assert risen == ["core: 1 identifiers, 0 allowed\n    module.py:2: one"]


def test_a_record_is_read_as_it_was_written() -> None:
    counts = read_record(RECORD.read_text())
    assert read_record(write_record(counts)) == counts

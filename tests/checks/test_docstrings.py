"""The check of how docstrings begin: what it refuses and what it lets pass."""

from __future__ import annotations

from tests.checks.docstrings import offences


def test_a_docstring_with_a_subject_passes() -> None:
    assert list(offences("m.py", '"""Whatever a run has committed."""\n\ndef f():\n    """All partitions."""\n')) == []


def test_one_without_a_subject_is_named_with_its_line() -> None:
    (line,) = offences("m.py", '"""A module."""\n\ndef f():\n    """Whether it is."""\n')
    assert line.startswith('m.py:4: a docstring begins with "Whether"')


def test_the_docstring_of_an_attribute_counts() -> None:
    (line,) = offences("m.py", 'class C:\n    size: int = 0\n    """What it takes."""\n')
    assert line.startswith("m.py:3:")


def test_several_words_may_be_no_subject() -> None:
    assert len(list(offences("m.py", '"""All of them, now."""\n'))) == 1
    assert list(offences("m.py", 'x = 1\nprint(x)\n"What is no docstring"\n')) == []


def test_a_fragment_is_refused_in_the_source_and_may_end_the_name_of_a_test() -> None:
    text = 'def f():\n    """By token."""\n'
    assert len(list(offences("src/oncelog/m.py", text))) == 1
    assert list(offences("tests/test_m.py", text)) == []

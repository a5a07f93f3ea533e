"""Readers of strangers' bytes refuse them by the errors they declare, and at a bounded cost.

A fixed number of executions by a fixed seed; ``python -m tests.hostile --seconds 600`` goes on.
"""

from __future__ import annotations

import pytest

from tests.hostile.engine import CORPUS, Fuzzer, Target, kept
from tests.hostile.targets import TARGETS

EXECUTIONS = {"requests": 2500, "batches": 2000, "recovery": 150, "small-files": 600}


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_nothing_is_found(name: str) -> None:
    outcome = Fuzzer(TARGETS[name], seed=1).run(executions=EXECUTIONS.get(name, 1000))
    assert outcome.findings == {}
    assert outcome.ways > 10


@pytest.mark.parametrize("name", TARGETS)
def test_what_once_found_something_finds_nothing_any_more(name: str) -> None:
    target = TARGETS[name]
    for data in kept(name):
        try:
            target.run(data)
        except target.refusals:
            continue


def test_the_corpus_belongs_to_targets() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= set(TARGETS)


def _fragile(data: bytes) -> None:
    """Reads a number that it does not bound, and a length that it believes. Any seed finds both in 250 executions."""
    from oncelog.wire.reader import Reader

    reader = Reader(data, 10)
    size = reader.int16()
    if size > 0x1000:
        bytearray(8 << 20)
    if reader.int8() == 2:
        [][reader.int8()]


@pytest.mark.slow
def test_the_fuzzer_finds_a_bug_and_a_waste_and_does_so_again() -> None:
    from oncelog.base.errors import PeerError

    target = Target("fragile", lambda: [b"\0\0\0\0"], _fragile, (PeerError,))
    first, again = (Fuzzer(target, seed=3).run(executions=500) for _ in range(2))
    assert first.findings == again.findings
    assert {finding.split()[0] for finding in first.findings} == {"IndexError", "costs"}

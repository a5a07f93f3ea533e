"""A full collection looks at what is new; once that has doubled what there was, at everything."""

from __future__ import annotations

import gc
import weakref

import pytest

from oncelog.runtime import garbage_collector as collector
from oncelog.runtime.garbage_collector import Collector


class Fake:
    """Counts objects, as ``gc`` does."""

    def __init__(self) -> None:
        self.callbacks = []
        self.new = self.frozen = 0
        self.looked_at = []

    def get_objects(self, generation):
        return [None] * self.new

    def freeze(self):
        self.frozen, self.new = self.frozen + self.new, 0

    def unfreeze(self):
        self.frozen, self.new = 0, self.new + self.frozen

    def get_freeze_count(self):
        return self.frozen

    def collect(self):
        self.looked_at.append(self.new)
        for callback in self.callbacks:
            callback("start", {"generation": 2})
            callback("stop", {"generation": 2})


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(collector, "LEAST", 100)
    return Fake()


def test_what_was_there_and_what_was_left_is_not_looked_at_again(fake):
    fake.new = 500
    Collector(fake).start()
    for _ in range(4):
        fake.new += 60
        fake.collect()
    assert fake.looked_at == [60, 60, 60, 60]


def test_when_it_has_doubled_everything_is_looked_at_once(fake):
    fake.new = 100
    Collector(fake).start()
    for _ in range(6):
        fake.new += 60
        fake.collect()
    assert fake.looked_at == [60, 60, 100 + 60 * 3, 60, 60, 60]


def test_what_was_freed_meanwhile_does_not_count(fake):
    fake.new = 100
    Collector(fake).start()
    for _ in range(6):
        fake.new += 60
        fake.collect()
        fake.frozen -= 60
    assert fake.looked_at == [60] * 6


def test_younger_generations_change_nothing(fake):
    Collector(fake).start()
    fake.new = 7
    for callback in fake.callbacks:
        callback("stop", {"generation": 1})
    assert fake.frozen == 0


def test_with_the_real_one_cycles_that_are_new_are_collected():
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    collected = Collector()
    collected.start()
    try:
        assert gc.get_freeze_count() > 1000
        seen = weakref.ref(Cycle())
        gc.collect()
        assert seen() is None
        assert not gc.get_objects(2)
    finally:
        collected.stop()
        assert gc.get_freeze_count() == 0

"""Logs of groups of both protocols with damaged, truncated, exchanged and unknown records: they load, and are served.

A damaged record is passed over, or read as something else that a group can have; no load fails or hangs, and neither
does anything that is asked of the groups afterwards.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import pytest

from oncelog.base.ids import GroupId
from oncelog.core.groups.model import Record
from oncelog.records.internal.consumer_group_records import KEY_TYPES
from oncelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tests.property.groups.test_mixed_groups import BatchDriver, History, run

LOGS: Final = 2
DAMAGES: Final = 60
STEPS: Final = 6
GROUP_METADATA: Final = b"\0\2"
EPOCHS: Final = {b"\0\3": 2, b"\0\6": 2, b"\0\x08": 2, GROUP_METADATA: 4}
"""The position of the epoch in the values of a kind of record; in a classic group's it follows the protocol type."""


def flip(entropy: random.Random, data: bytes) -> bytes:
    """Bytes with some of them replaced, mostly by values at an edge."""
    changed = bytearray(data)
    for _ in range(entropy.choice((1, 1, 2, 5)) if data else 0):
        changed[entropy.randrange(len(data))] = entropy.choice((0, 1, 2, 0x7F, 0x80, 0xFF, entropy.randrange(256)))
    return bytes(changed)


def widen(entropy: random.Random, data: bytes) -> bytes:
    """Bytes with a number at an edge of its type."""
    start, size = entropy.randrange(len(data) + 1), entropy.choice((2, 4, 8))
    edge = entropy.choice((2 ** (8 * size - 1) - 1, -(2 ** (8 * size - 1)), -1)).to_bytes(size, "big", signed=True)
    return data[:start] + edge + data[start + size :]


def cut(entropy: random.Random, data: bytes) -> bytes:
    return data[: entropy.randrange(len(data) + 1)]


def lengthen(entropy: random.Random, data: bytes) -> bytes:
    return data + entropy.randbytes(entropy.choice((1, 2, 40)))


def change_version(entropy: random.Random, data: bytes) -> bytes:
    version = entropy.choice((-1, 0, 1, 4, 9, 15, 17, 32_767, *KEY_TYPES))
    return version.to_bytes(2, "big", signed=True) + data[2:]


def repeat_inside(entropy: random.Random, data: bytes) -> bytes:
    start = entropy.randrange(len(data) + 1)
    return data[:start] + data[start : start + 20] + data[start:]


DAMAGE: Final[tuple[Callable[[random.Random, bytes], bytes], ...]] = (
    flip,
    widen,
    cut,
    lengthen,
    change_version,
    repeat_inside,
)


def damaged(entropy: random.Random, log: list[Record]) -> list[Record]:
    """A log with some records changed, dropped, repeated, moved, or with another's value."""
    records = list(log)
    for _ in range(entropy.choice((1, 3, 10, 30))):
        place = entropy.randrange(len(records))
        key, value = records[place]
        damage = entropy.choice(DAMAGE)
        match entropy.randrange(8):
            case 0:
                records[place] = damage(entropy, key), value
            case 1:
                records[place] = key, None
            case 2:
                records[place] = key, entropy.choice(records)[1]
            case 3:
                records.append(records.pop(place))
            case 4:
                records.insert(entropy.randrange(len(records)), (key, value))
            case _:
                records[place] = key, None if value is None else damage(entropy, value)
    return records


def serve(history: History, log: list[Record]) -> None:
    """Load a log, and do everything with its groups."""
    bench = history.bench
    driver = BatchDriver(bench.driver.settings, now_ms=bench.driver.now_ms, topics=bench.driver.topics)
    driver.log = list(log)
    driver.__post_init__()
    driver.starts, driver.ids = [0], 1000
    bench.driver = history.driver = driver
    shard = driver.shard
    groups = [listing.group_id for listing in shard.listings()]
    bench.ask(ConsumerGroupDescribeRequest(group_ids=[*groups, "g"]), 1)
    for group in groups:
        shard.describe(GroupId(group))
    for _ in range(STEPS):
        history.step()
    driver.advance(100_000)
    shard.check()


@pytest.mark.parametrize("seed", range(LOGS))
def test_damaged_logs_load_and_their_groups_are_served(seed: int) -> None:
    log: list[Any] = run(seed).driver.log
    records = [entry for entry in log if len(entry) == 2 and isinstance(entry[0], bytes)]
    assert len(records) == len(log)
    for number in range(DAMAGES):
        entropy = random.Random(f"{seed} {number}")
        history = History(number)
        serve(history, damaged(entropy, records))


@pytest.mark.parametrize("seed", range(LOGS))
def test_epochs_at_the_end_of_their_type_are_passed_over(seed: int) -> None:
    log: list[Any] = run(seed).driver.log
    for place, (key, value) in enumerate(log):
        for edge in (b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff"):
            if value is not None and key[:2] in EPOCHS:
                at = EPOCHS[key[:2]] if key[:2] != GROUP_METADATA else 4 + int.from_bytes(value[2:4], "big")
                changed = value[:at] + edge + value[at + 4 :]
                serve(History(place), [*log[:place], (key, changed), *log[place + 1 :]])

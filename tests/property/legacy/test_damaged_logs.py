"""Damaged logs of 0.7: cut, flipped, zeroed, with nonsense in them. Never a wrong message, always an end."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.legacy.logs.entries import Limits
from oncelog.legacy.logs.log_reader import BadPlace, LogReader, Messages
from tests.old_logs import GZIP, SNAPPY, file_path, message, message_set, write_log

LIMITS = Limits(entry_bytes=1 << 20, set_bytes=1 << 20)


class Outer(NamedTuple):
    """An outer entry: its bytes, and the messages in it."""

    data: bytes
    messages: tuple[bytes, ...]


def _numbered(draw: st.DrawFn, numbers: Iterator[int], kinds: Sequence[str]) -> bytes:
    """A payload that no other message has, unless it is empty."""
    number = next(numbers)
    kind = draw(st.sampled_from(kinds))
    own = b"%d:" % number
    if kind == "empty":
        return b""
    if kind == "looks like a log":
        return own + message(b"inside %d" % number) * 2 + message(b"", magic=0)
    return own + (bytes(30) if kind == "zeros" else draw(st.binary(max_size=40)))


KINDS = ("plain", "plain", "empty", "zeros")


@st.composite
def logs(draw: st.DrawFn, kinds: Sequence[str] = (*KINDS, "looks like a log")) -> list[Outer]:
    """Outer entries of all kinds, with payloads of these kinds."""
    numbers = iter(range(10_000))
    results = []
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["old", "new", "new", "set", "sets in a set"]))
        payloads = [
            _numbered(draw, numbers, kinds) for _ in range(1 if kind in ("old", "new") else draw(st.integers(1, 3)))
        ]
        entries = [message(payload, magic=draw(st.integers(0, 1))) for payload in payloads]
        codec = draw(st.sampled_from([GZIP, SNAPPY]))
        if kind in ("old", "new"):
            results.append(Outer(message(payloads[0], magic=int(kind == "new")), tuple(payloads)))
        elif kind == "set":
            results.append(Outer(message_set(entries, codec), tuple(payloads)))
        else:
            results.append(Outer(message_set([message_set(entries, codec)], 3 - codec), tuple(payloads)))
    return results


def read_skipping(directory: Path) -> tuple[list[bytes], list[BadPlace]]:
    """Everything that ``--on-corruption skip`` imports; fails if the reader does not move."""
    reader = LogReader(directory, None, LIMITS)
    messages: list[bytes] = []
    places: list[BadPlace] = []
    steps = 0
    try:
        while (read_back := reader.read()) is not None:
            steps += 1
            assert steps < 1000
            if isinstance(read_back, Messages):
                messages += read_back.payloads
            else:
                assert read_back.size > 0
                places.append(read_back)
                reader.pass_over(read_back)
    finally:
        reader.close()
    return messages, places


def is_subsequence(some: Iterable[bytes], whole: Iterable[bytes]) -> bool:
    """True if ``some`` are of ``whole``, in order."""
    left = iter(whole)
    return all(data in left for data in some)


@settings(max_examples=60, deadline=None)
@given(log=logs(), file_bytes=st.integers(20, 400), start=st.sampled_from([0, 77]))
def test_what_is_sound_is_read_whole(log: list[Outer], file_bytes: int, start: int) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        write_log(Path(temporary), [outer.data for outer in log], file_bytes=file_bytes, start=start)
        assert read_skipping(Path(temporary)) == ([item for outer in log for item in outer.messages], [])


@settings(max_examples=150, deadline=None)
@given(log=logs(), data=st.data())
def test_one_flipped_bit_costs_at_most_its_entry(log: list[Outer], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        offsets = write_log(Path(temporary), [outer.data for outer in log])
        path = file_path(Path(temporary), 0)
        content = bytearray(path.read_bytes())
        bit = data.draw(st.integers(0, 8 * len(content) - 1))
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        messages, places = read_skipping(Path(temporary))
        hit = max(number for number, offset in enumerate(offsets) if offset <= bit // 8)
        without = [item for number, outer in enumerate(log) if number != hit for item in outer.messages]
        assert (
            messages == without
            or messages == [item for outer in log for item in outer.messages]
            or (is_subsequence(messages, without) and _only_empty_lost(messages, without))
        )
        assert len(places) <= 2


def _only_empty_lost(messages: list[bytes], whole: list[bytes]) -> bool:
    """True if nothing but empty messages is missing: nine bytes of one are no proof that entries go on."""
    return [item for item in messages if item] == [data for data in whole if data]


@settings(max_examples=200, deadline=None)
@given(log=logs(KINDS), file_bytes=st.integers(20, 400), data=st.data())
def test_no_damage_makes_a_message(log: list[Outer], file_bytes: int, data: st.DataObject) -> None:
    """Each message that is read was written, in that order. Payloads that look like a log are left out here: where
    the head of their entry is wiped out, nobody can know them from a log."""
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        write_log(directory, [outer.data for outer in log], file_bytes=file_bytes)
        for path in sorted(directory.iterdir()):
            content = bytearray(path.read_bytes())
            for _ in range(data.draw(st.integers(0, 3))):
                if not content:
                    break
                at = data.draw(st.integers(0, len(content) - 1))
                size = data.draw(st.integers(1, 30))
                match data.draw(st.sampled_from(["cut", "flip", "zero", "nonsense"])):
                    case "cut":
                        del content[at:]
                    case "flip":
                        content[at] ^= 1 << data.draw(st.integers(0, 7))
                    case "zero":
                        content[at : at + size] = bytes(len(content[at : at + size]))
                    case _:
                        content[at : at + size] = data.draw(st.binary(min_size=1, max_size=30))
            path.write_bytes(content)
        messages, _ = read_skipping(directory)
        assert is_subsequence(messages, [item for outer in log for item in outer.messages])

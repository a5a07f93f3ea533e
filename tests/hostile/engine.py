"""Coverage-guided fuzzing in one process, seeded: an input that reaches a line by a new way is kept and mutated on.

The rule: the same seed, target and number of executions try the same inputs. A target may refuse what it is given by
the errors it declares; anything else it raises, more memory than its bound allows, and more time, is a finding.
Time is the process's own, so that a busy machine finds nothing.
"""

from __future__ import annotations

import gc
import hashlib
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

import oncelog
from tests.memory import peak_bytes

CORPUS: Final = Path(__file__).parent / "corpus"
"""Inputs that found something, by target: replayed by the tests for ever."""
_TRACED: Final = str(Path(oncelog.__file__).parent)
_LARGEST_INPUT: Final = 16 * 1024
_SLOWEST_S: Final = 0.5
_MEASURE_EVERY: Final = 16
_NUMBERS: Final = (0, 1, -1, -2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0x10000, 2**31 - 1, 2**31, 2**63 - 1, -(2**63))
_TOKENS: Final = (b"\x80\x80\x80\x80\x08", b"\xff\xff\xff\xff\x0f", b"\xff" * 10, b"9" * 5000, b"\n", b"=", b"-1", b" ")


@dataclass(frozen=True)
class Target:
    """A target of fuzzing. ``run`` raises ``refusals`` or nothing; ``memory_bytes`` bounds the cost of an input."""

    name: str
    seeds: Callable[[], Sequence[bytes]]
    run: Callable[[bytes], None]
    refusals: tuple[type[Exception], ...] = ()
    memory_bytes: Callable[[int], int] = lambda size: (1 << 20) + 600 * size


@dataclass
class Outcome:
    """The progress and the findings of a run."""

    executions: int = 0
    refused: int = 0
    ways: int = 0
    """Pairs of lines executed one after the other."""
    kept: int = 0
    worst_ms: float = 0.0
    worst_memory: int = 0
    findings: dict[str, bytes] = field(default_factory=dict)
    """By what went wrong, the smallest input that shows it."""


class Fuzzer:
    """One target under one seed."""

    def __init__(self, target: Target, seed: int) -> None:
        self._target = target
        self._chance = random.Random(f"{target.name} {seed}")
        self._ways: set[tuple[str, int, int]] = set()
        self._corpus: list[bytes] = []
        self.outcome = Outcome()

    def run(self, *, executions: int = sys.maxsize, seconds: float = float("inf")) -> Outcome:
        """Try the seeds, then mutations of what was kept."""
        ends_s = time.monotonic() + seconds
        for data in self._target.seeds():
            self._try(data)
        while self.outcome.executions < executions and time.monotonic() < ends_s:
            self._try(self._mutated())
        self.outcome.ways, self.outcome.kept = len(self._ways), len(self._corpus)
        return self.outcome

    def _try(self, data: bytes) -> None:
        outcome = self.outcome
        outcome.executions += 1
        before = len(self._ways)
        started_s = time.thread_time()
        self._traced(data)
        took_s = time.thread_time() - started_s
        if took_s > _SLOWEST_S:
            took_s = self._timed(data)
        outcome.worst_ms = max(outcome.worst_ms, took_s * 1000)
        if took_s > _SLOWEST_S:
            self._found(f"took {_SLOWEST_S} s and more", data)
        if len(self._ways) > before:
            self._corpus.append(data)
        if len(self._ways) > before or outcome.executions % _MEASURE_EVERY == 0:
            self._measure(data)

    def _traced(self, data: bytes) -> None:
        ways, last = self._ways, 0

        def line(frame: FrameType, event: str, _argument: Any) -> Any:
            nonlocal last
            ways.add((frame.f_code.co_qualname, last, frame.f_lineno))
            last = frame.f_lineno
            return line

        def call(frame: FrameType, event: str, argument: Any) -> Any:
            return line(frame, event, argument) if frame.f_code.co_filename.startswith(_TRACED) else None

        before, collects = sys.gettrace(), gc.isenabled()
        gc.disable()  # ends of other tests' objects would count as ways of this input
        sys.settrace(call)
        try:
            self._target.run(data)
        except self._target.refusals:
            self.outcome.refused += 1
        except Exception as error:  # noqa: BLE001 - whatever else comes out is what is looked for
            sys.settrace(before)
            self._found(_described(error), data)
        finally:
            sys.settrace(before)
            if collects:
                gc.enable()

    def _timed(self, data: bytes) -> float:
        """Without tracing, which slows it tenfold."""
        started_s = time.thread_time()
        self._quietly(data)
        return time.thread_time() - started_s

    def _measure(self, data: bytes) -> None:
        bound = self._target.memory_bytes(len(data))
        peak = peak_bytes(lambda: self._quietly(data), bound + 1)
        self.outcome.worst_memory = max(self.outcome.worst_memory, peak)
        if peak > bound:
            self._found("costs more memory than its bound", data)

    def _quietly(self, data: bytes) -> None:
        try:
            self._target.run(data)
        except Exception:  # noqa: BLE001 - what it raises was judged already
            return

    def _found(self, text: str, data: bytes) -> None:
        known = self.outcome.findings.get(text)
        if known is None or len(data) < len(known):
            self.outcome.findings[text] = data

    def _mutated(self) -> bytes:
        chance = self._chance
        data = bytearray(chance.choice(self._corpus))
        for _ in range(1 << chance.randrange(4)):
            self._mutate(data)
        return bytes(data[:_LARGEST_INPUT])

    def _mutate(self, data: bytearray) -> None:
        chance = self._chance
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(8)
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << chance.randrange(8)
        elif kind == 1 and data:
            data[at % len(data)] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF, chance.randrange(256)))
        elif kind == 2:
            size = chance.choice((1, 2, 4, 8))
            number = chance.choice(_NUMBERS) + chance.randrange(-1, 2)
            data[at : at + size] = (number & (1 << 8 * size) - 1).to_bytes(size, "big")
        elif kind == 3:
            del data[at : at + chance.choice((1, 2, 4, 16, 64))]
        elif kind == 4:
            data[at:at] = chance.randbytes(chance.choice((1, 2, 4, 8)))
        elif kind == 5:
            data[at:at] = chance.choice(_TOKENS)
        elif kind == 6:
            start = chance.randrange(len(data) + 1)
            data[at:at] = data[start : start + chance.choice((1, 8, 61, 200))]
        else:
            other = chance.choice(self._corpus)
            start = chance.randrange(len(other) + 1)
            data[at:] = other[start:]


def _described(error: Exception) -> str:
    """Type and place: one finding for each, whatever its message says."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}"
    return f"{type(error).__name__} at {where}"


def keep(target: str, data: bytes) -> Path:
    """Put an input that found something into the corpus."""
    path = CORPUS / target / f"{hashlib.sha256(data).hexdigest()[:12]}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def kept(target: str) -> list[bytes]:
    """Inputs that found something before."""
    return [path.read_bytes() for path in sorted((CORPUS / target).glob("*.bin"))]

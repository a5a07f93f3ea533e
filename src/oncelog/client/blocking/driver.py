"""Carries out programs with blocking sockets, in one thread; programs that run side by side share the waits.

The rule: while one program waits for an answer the others go on. An interrupt closes every program of the run, and
the links on which answers are outstanding: nothing could tell these answers from later ones.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from oncelog.client.addresses import Address
from oncelog.client.blocking.link import Link
from oncelog.client.blocking.system import System
from oncelog.client.config import ClientConfig
from oncelog.client.errors import ClientError, RequestTimedOut
from oncelog.client.programs import steps
from oncelog.client.programs.steps import Acquire, Call, Connect, Parallel, Program, Sleep, Step, Submit, Wait

T = TypeVar("T")


class ThreadLock:
    """A lock between programs of one thread."""

    def __init__(self) -> None:
        self.is_held = False

    def release(self) -> None:
        """Let the next program have it."""
        self.is_held = False


class _Sent:
    """A request that is not waited for."""

    def __init__(self, link: Link, correlation_id: int, deadline_ms: float, now_ms: Callable[[], int]) -> None:
        self.link = link
        self._correlation_id = correlation_id
        self._deadline_ms = deadline_ms
        self._now_ms = now_ms
        self._response: Any = None
        self._failure: ClientError | None = None

    @property
    def is_done(self) -> bool:
        """Read what has come; True if the response is in it, or the connection or the time is lost."""
        if self._response is None and self._failure is None:
            try:
                response = self.link.arrived(self._correlation_id)
                if response is not None:
                    self._response = self.link.decode(response)
                elif self._now_ms() < self._deadline_ms:
                    return False
                else:
                    self.link.close()
                    raise RequestTimedOut(f"no answer from {self.link.address} in time")
            except ClientError as error:
                self._failure = error
        return True

    def result(self) -> Any:
        """The response."""
        if self._failure is not None:
            raise self._failure
        return self._response


class _Strand:
    """One of the programs of a run: what it waits for, and the strand that waits for its end."""

    __slots__ = ("correlation_id", "deadline_ms", "failures", "index", "left", "parent", "program", "results", "step")

    def __init__(self, program: Program[Any], parent: _Strand | None = None, index: int = 0) -> None:
        self.program = program
        self.parent = parent
        self.index = index
        self.step: Step | None = None
        self.correlation_id = -1
        self.deadline_ms = 0.0
        self.left = 0
        self.results: list[Any] = []
        self.failures: dict[int, ClientError] = {}
        """The failures of the programs that it waits for, by index."""


class Driver:
    """Runs programs; ``run`` may be called again from within one."""

    def __init__(
        self, config: ClientConfig, system: System, open_link: Callable[[Address], steps.Link] | None = None
    ) -> None:
        self._config = config
        self._system = system
        self._open_link = open_link or partial(Link, config=config, system=system)

    def now_ms(self) -> int:
        """The monotonic clock."""
        return self._system.now_ms()

    def now_us(self) -> int:
        """The monotonic clock, in microseconds."""
        return self._system.now_us()

    def wall_ms(self) -> int:
        """The wall clock."""
        return self._system.wall_ms()

    def jitter(self, least: int, most: int) -> int:
        """A random number."""
        return self._system.jitter(least, most)

    def lock(self) -> ThreadLock:
        """A lock between programs."""
        return ThreadLock()

    def run(self, program: Program[T]) -> T:
        """Run a program to its end. Raises what it raises."""
        run = _Run(self._config, self._system, self._open_link, program)
        try:
            result: T = run.finish()
            return result
        except BaseException:
            run.abort()
            raise


class _Run:
    """A program and those that it runs side by side."""

    def __init__(
        self,
        config: ClientConfig,
        system: System,
        open_link: Callable[[Address], steps.Link],
        program: Program[Any],
    ) -> None:
        self._config = config
        self._system = system
        self._open_link = open_link
        self._root = _Strand(program)
        self._ready: deque[tuple[_Strand, Any, ClientError | None]] = deque([(self._root, None, None)])
        self._waiting: list[_Strand] = []
        self._split: list[_Strand] = []
        """Strands that wait for the end of others."""

    def finish(self) -> Any:
        """Go on until the program has ended; its result."""
        while True:
            while self._ready:
                strand, value, error = self._ready.popleft()
                try:
                    step = strand.program.send(value) if error is None else strand.program.throw(error)
                except StopIteration as end:
                    if strand.parent is None:
                        return end.value
                    self._ended(strand.parent, strand.index, end.value, None)
                except ClientError as failure:
                    if strand.parent is None:
                        raise
                    self._ended(strand.parent, strand.index, None, failure)
                else:
                    self._begin(strand, step)
            self._wait()

    def abort(self) -> None:
        """Close the programs, and the links on which answers are outstanding."""
        for strand in self._waiting:
            if isinstance(strand.step, Call):
                strand.step.link.abort()
        ready = [strand for strand, _, _ in self._ready]
        for strand in [*self._waiting, *ready, *reversed(self._split), self._root]:
            strand.program.close()

    def _ended(self, parent: _Strand, index: int, result: Any, failure: ClientError | None) -> None:
        parent.results[index] = result
        if failure is not None:
            parent.failures[index] = failure
        parent.left -= 1
        if not parent.left:
            self._split.remove(parent)
            first = min(parent.failures, default=None)
            self._ready.append((parent, parent.results, None if first is None else parent.failures[first]))

    def _begin(self, strand: _Strand, step: Step) -> None:
        """Begin a step; as long as the program runs alone the step is also finished here."""
        is_alone = not self._split
        strand.step = step
        try:
            match step:
                case Call(link, message, version, timeout_ms, read):
                    strand.correlation_id = _own(link).submit(message, version)
                    if is_alone:
                        response = _own(link).response(strand.correlation_id, timeout_ms)
                        self._ready.append((strand, _own(link).read(response, read), None))
                        return
                    allowed = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
                    strand.deadline_ms = self._system.now_ms() + allowed
                    self._waiting.append(strand)
                case Submit(link, message, version, timeout_ms, answered):
                    correlation_id = _own(link).submit(message, version, answered=answered)
                    deadline_ms = self._system.now_ms() + timeout_ms
                    sent = _Sent(_own(link), correlation_id, deadline_ms, self._system.now_ms)
                    self._ready.append((strand, sent, None))
                case Sleep(milliseconds) if is_alone:
                    self._system.sleep(milliseconds)
                    self._ready.append((strand, None, None))
                case Wait(pending, milliseconds) if is_alone:
                    links = [cast("_Sent", sent).link for sent in pending]
                    if all(link.is_open and not link.pending() for link in links):
                        self._system.wait([link.stream for link in links], milliseconds)
                    self._ready.append((strand, None, None))
                case Sleep(milliseconds) | Wait(_, milliseconds):
                    strand.deadline_ms = self._system.now_ms() + milliseconds
                    self._waiting.append(strand)
                case Acquire():
                    strand.deadline_ms = math.inf
                    self._waiting.append(strand)
                case Connect(address):
                    self._ready.append((strand, self._open_link(address), None))
                case Parallel(programs):
                    self._run_each(strand, programs)
        except ClientError as error:
            self._ready.append((strand, None, error))

    def _run_each(self, strand: _Strand, programs: Sequence[Program[Any]]) -> None:
        strand.results, strand.failures, strand.left = [None] * len(programs), {}, len(programs)
        if not programs:
            self._ready.append((strand, [], None))
            return
        self._split.append(strand)
        self._ready.extend((_Strand(program, strand, index), None, None) for index, program in enumerate(programs))

    def _wait(self) -> None:
        """Wait until a strand can go on."""
        while not self._ready:
            for strand in list(self._waiting):
                self._resume_if_done(strand)
            if not self._ready:
                self._wait_for_any()

    def _resume_if_done(self, strand: _Strand) -> None:
        value: Any = None
        error: ClientError | None = None
        is_late = self._system.now_ms() >= strand.deadline_ms
        match strand.step:
            case Call(link, read=read):
                try:
                    response = _own(link).arrived(strand.correlation_id)
                    if response is not None:
                        value = _own(link).read(response, read)
                    elif is_late:
                        link.abort()
                        raise RequestTimedOut(f"no answer from {link.address} in time")
                    else:
                        return
                except ClientError as failure:
                    error = failure
            case Acquire(lock):
                held = cast("ThreadLock", lock)
                if held.is_held:
                    return
                held.is_held = True
            case Wait(pending):
                if not is_late and not any(sent.is_done for sent in pending):
                    return
            case _ if not is_late:
                return
        self._waiting.remove(strand)
        self._ready.append((strand, value, error))

    def _wait_for_any(self) -> None:
        left_ms = max(0.0, min(strand.deadline_ms for strand in self._waiting) - self._system.now_ms())
        links: list[Link] = []
        for strand in self._waiting:
            match strand.step:
                case Call(link):
                    if _own(link).has_arrived(strand.correlation_id):
                        return
                    links.append(_own(link))
                case Wait(pending):
                    links += [cast("_Sent", sent).link for sent in pending]
        if links:
            self._system.wait(list(dict.fromkeys(link.stream for link in links)), left_ms)
        else:
            self._system.sleep(left_ms)


def _own(link: steps.Link) -> Link:
    """The link as this driver has opened it."""
    return cast("Link", link)

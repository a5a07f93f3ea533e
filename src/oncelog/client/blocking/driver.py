"""Runs programs with blocking sockets in one thread; of several in parallel, others continue while one waits.

An interrupt closes the programs, and the links with outstanding responses.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar, cast

from oncelog.client.addresses import Address
from oncelog.client.blocking.link import Link
from oncelog.client.blocking.system import System
from oncelog.client.config import ClientConfig
from oncelog.client.errors import ClientError, RequestTimedOut
from oncelog.client.machine.connection import ExpectedBroker
from oncelog.client.programs import steps
from oncelog.client.programs.steps import Acquire, Call, Connect, Parallel, Program, Sleep, Step, Submit, Wait

T = TypeVar("T")


class ThreadLock:
    """A lock between programs of one thread."""

    def __init__(self) -> None:
        self.holder: object = None
        """The program or strand that holds it. An interrupt may come between the grant and the program's ``try``;
        the driver then releases it."""

    def release(self) -> None:
        self.holder = None

    def release_of(self, holder: object) -> None:
        if self.holder is holder:
            self.holder = None


class _Sent:
    """A request that is not awaited."""

    def __init__(self, link: Link, correlation_id: int, deadline_ms: int, now_ms: Callable[[], int]) -> None:
        self.link = link
        self._correlation_id = correlation_id
        self._deadline_ms = deadline_ms
        self._now_ms = now_ms
        self._response: Any = None
        self._failure: ClientError | None = None

    @property
    def is_done(self) -> bool:
        """Read what has arrived. True if that completes the response, or the connection or the time is lost."""
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
        if self._failure is not None:
            raise self._failure
        return self._response


class Driver:
    """Runs programs; ``run`` may be called again from within one."""

    def __init__(
        self,
        config: ClientConfig,
        system: System,
        open_link: Callable[[Address, ExpectedBroker | None, int | None], steps.Link] | None = None,
    ) -> None:
        self.request_timeout_ms = config.request_timeout_ms
        self.system = system
        self.now_ms = system.now_ms
        self.now_us = system.now_us
        self.wall_ms = system.wall_ms
        self.jitter = system.jitter
        self._open_link = open_link or (
            lambda address, expected, timeout_ms: Link(address, config, system, expected, timeout_ms)
        )

    def lock(self) -> ThreadLock:
        return ThreadLock()

    def run(self, program: Program[T]) -> T:
        value: Any = None
        error: ClientError | None = None
        step: Step | None = None
        try:
            while True:
                try:
                    step = program.send(value) if error is None else program.throw(error)
                except StopIteration as end:
                    result: T = end.value
                    return result
                value, error = None, None
                try:
                    value = self._carry_out(program, step)
                except ClientError as failure:
                    error = failure
        finally:
            if isinstance(step, Acquire):
                cast("ThreadLock", step.lock).release_of(program)
            program.close()

    def begin(self, step: Connect | Submit) -> Any:
        """Carry out a step that waits for no response."""
        if isinstance(step, Connect):
            return self._open_link(step.address, step.expected, step.timeout_ms)
        link = cast("Link", step.link)
        correlation_id = link.submit(step.message, step.version, answered=step.answered)
        return _Sent(link, correlation_id, self.now_ms() + step.timeout_ms, self.now_ms)

    def _carry_out(self, program: Program[Any], step: Step) -> Any:
        match step:
            case Call():
                link = cast("Link", step.link)
                response = link.response(link.submit(step.message, step.version), step.timeout_ms)
                return link.read(response, step.read)
            case Connect() | Submit():
                return self.begin(step)
            case Sleep():
                self.system.sleep(step.milliseconds)
            case Acquire():
                cast("ThreadLock", step.lock).holder = program  # no other program runs
            case Wait():
                links = [cast("_Sent", sent).link for sent in step.pending]
                # Buffered bytes do not show when polling the socket.
                if not all(link.is_open and not link.pending() for link in links):
                    return True
                return self.system.wait([link.stream for link in links], step.milliseconds)
            case Parallel():
                return _SideBySide(self, step.programs).finish()
        return None


class _Group:
    def __init__(self, count: int, parent: _Strand | None) -> None:
        self.parent = parent
        self.left = count
        self.results: list[Any] = [None] * count
        self.failures: dict[int, ClientError] = {}

    def failure(self) -> ClientError | None:
        return self.failures[min(self.failures)] if self.failures else None


class _Strand:
    def __init__(self, program: Program[Any], group: _Group, index: int) -> None:
        self.program = program
        self.group = group
        self.index = index
        self.step: Step | None = None
        # −1 until a Call is sent.
        self.correlation_id = -1
        self.deadline_ms = 0.0


class _SideBySide:
    """One parallel run of several programs, which may start parallel runs themselves."""

    def __init__(self, driver: Driver, programs: Sequence[Program[Any]]) -> None:
        self._driver = driver
        self._ready: deque[tuple[_Strand, Any, ClientError | None]] = deque()
        self._waiting: list[_Strand] = []
        self._strands: dict[_Strand, None] = {}
        """Strands that have not ended, in start order."""
        self._all = self._start(programs, None)

    def finish(self) -> list[Any]:
        """Run until all have ended. Returns their results. Raises the first program's failure."""
        try:
            while self._all.left:
                while self._ready:
                    self._resume(*self._ready.popleft())
                self._wait()
        except BaseException:
            self._abort()
            raise
        if (failure := self._all.failure()) is not None:
            raise failure
        return self._all.results

    def _abort(self) -> None:
        """Close links with outstanding responses, release locks, close programs: all of them, even if one raises."""
        with ExitStack() as last_first:
            for strand in self._strands:  # programs before those that run them
                last_first.callback(strand.program.close)
            for strand in self._strands:
                if isinstance(strand.step, Acquire):
                    last_first.callback(cast("ThreadLock", strand.step.lock).release_of, strand)
            for strand in self._waiting:
                if isinstance(strand.step, Call):
                    last_first.callback(strand.step.link.abort)

    def _start(self, programs: Sequence[Program[Any]], parent: _Strand | None) -> _Group:
        group = _Group(len(programs), parent)
        for index, program in enumerate(programs):
            strand = _Strand(program, group, index)
            self._strands[strand] = None
            self._ready.append((strand, None, None))
        return group

    def _resume(self, strand: _Strand, value: Any, error: ClientError | None) -> None:
        try:
            strand.step = strand.program.send(value) if error is None else strand.program.throw(error)
        except StopIteration as end:
            self._ended(strand, end.value, None)
        except ClientError as failure:
            self._ended(strand, None, failure)
        else:
            try:
                self._begin(strand, strand.step)
            except ClientError as failure:
                self._ready.append((strand, None, failure))

    def _ended(self, strand: _Strand, result: Any, failure: ClientError | None) -> None:
        del self._strands[strand]
        group = strand.group
        group.results[strand.index] = result
        if failure is not None:
            group.failures[strand.index] = failure
        group.left -= 1
        if not group.left and group.parent is not None:
            self._ready.append((group.parent, group.results, group.failure()))

    def _begin(self, strand: _Strand, step: Step) -> None:
        now_ms = self._driver.now_ms()
        match step:
            case Connect() | Submit():
                self._ready.append((strand, self._driver.begin(step), None))
                return
            case Parallel():
                if not self._start(step.programs, strand).left:
                    self._ready.append((strand, [], None))
                return
            case Call():
                strand.correlation_id = cast("Link", step.link).submit(step.message, step.version)
                allowed = self._driver.request_timeout_ms if step.timeout_ms is None else step.timeout_ms
                strand.deadline_ms = now_ms + allowed
            case Sleep() | Wait():
                strand.deadline_ms = now_ms + step.milliseconds
            case Acquire():
                strand.deadline_ms = math.inf
        self._waiting.append(strand)

    def _wait(self) -> None:
        while self._waiting and not self._ready:
            for strand in list(self._waiting):
                self._resume_if_done(strand)
            if not self._ready:
                self._wait_for_any()

    def _resume_if_done(self, strand: _Strand) -> None:
        value: Any = None
        error: ClientError | None = None
        is_late = self._driver.now_ms() >= strand.deadline_ms
        match strand.step:
            case Call() as call:
                link = cast("Link", call.link)
                try:
                    response = link.arrived(strand.correlation_id)
                    if response is not None:
                        value = link.read(response, call.read)
                    elif is_late:
                        link.close()
                        raise RequestTimedOut(f"no answer from {link.address} in time")
                    else:
                        return
                except ClientError as failure:
                    error = failure
            case Acquire(lock):
                thread_lock = cast("ThreadLock", lock)
                if thread_lock.holder is not None:
                    return
                thread_lock.holder = strand
            case Wait(pending):
                if not is_late and not any(sent.is_done for sent in pending):
                    return
            case _ if not is_late:
                return
        self._waiting.remove(strand)
        self._ready.append((strand, value, error))

    def _wait_for_any(self) -> None:
        driver = self._driver
        left_ms = max(0.0, min(strand.deadline_ms for strand in self._waiting) - driver.now_ms())
        links: list[Link] = []
        for strand in self._waiting:
            match strand.step:
                case Call(link):
                    if cast("Link", link).has_arrived(strand.correlation_id):
                        return
                    links.append(cast("Link", link))
                case Wait(pending):
                    links += [cast("_Sent", sent).link for sent in pending]
        if links:
            driver.system.wait(list(dict.fromkeys(link.stream for link in links)), left_ms)
        elif left_ms == math.inf:
            raise RuntimeError("programs wait for a lock that none of them releases")
        else:
            driver.system.sleep(left_ms)

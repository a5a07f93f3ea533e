"""Virtual time: order, cancelling, chance in streams, and an event loop that runs ordinary asyncio code in it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from oncelog.sim.virtual.kernel import LAST_LINES, Kernel
from oncelog.sim.virtual.loop import SimulatedLoop, Stuck


def run_all(kernel: Kernel) -> None:
    while kernel.step():
        pass


def test_what_is_due_happens_in_time_and_then_in_the_order_it_was_asked_for() -> None:
    kernel, seen = Kernel(1), list[str]()
    kernel.at(20, seen.append, "late")
    kernel.at(10, seen.append, "first at ten")
    kernel.at(10, seen.append, "second at ten")
    kernel.soon(seen.append, "now")
    kernel.at(0, seen.append, "past is now")
    run_all(kernel)
    assert seen == ["now", "past is now", "first at ten", "second at ten", "late"]
    assert kernel.now_us == 20


def test_what_something_asks_for_now_comes_after_what_was_asked_for_before() -> None:
    kernel, seen = Kernel(1), list[str]()

    def first() -> None:
        seen.append("first")
        kernel.soon(seen.append, "third")

    kernel.at(5, first)
    kernel.at(5, seen.append, "second")
    run_all(kernel)
    assert seen == ["first", "second", "third"]


def test_what_is_cancelled_does_not_happen_and_no_time_passes_for_it() -> None:
    kernel, seen = Kernel(1), list[str]()
    kernel.at(50, seen.append, "never").cancel()
    kernel.at(10, seen.append, "this")
    run_all(kernel)
    assert (seen, kernel.now_us, kernel.happened) == (["this"], 10, 1)


def test_chance_for_one_purpose_does_not_change_with_another() -> None:
    kernel, other = Kernel(7), Kernel(7)
    kernel.entropy("disk").random()
    assert kernel.entropy("network").random() == other.entropy("network").random()
    assert Kernel(8).entropy("network").random() != Kernel(7).entropy("network").random()


def test_the_trace_says_what_happened_and_when() -> None:
    kernel, same, other = Kernel(1), Kernel(1), Kernel(1)
    for one, at_us in ((kernel, 5), (same, 5), (other, 6)):
        one.at(at_us, one.trace, "it")
        run_all(one)
    assert kernel.trace_sha256() == same.trace_sha256() != other.trace_sha256()


def test_asyncio_sleeps_in_virtual_time() -> None:
    loop = SimulatedLoop(Kernel(1))  # type: ignore[abstract]  # what it lacks it refuses

    async def main() -> tuple[float, str]:
        started = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(3600):
                await asyncio.sleep(10_000)
        except TimeoutError:
            return asyncio.get_running_loop().time() - started, "too late"
        return 0, ""

    assert loop.run(main()) == (3600, "too late")


def test_waiting_for_what_never_happens_is_noticed() -> None:
    loop = SimulatedLoop(Kernel(1))  # type: ignore[abstract]  # what it lacks it refuses

    async def main() -> None:
        await loop.create_future()

    with pytest.raises(Stuck):
        loop.run(main())
    loop.end()


def test_a_run_that_takes_too_long_is_ended() -> None:
    loop = SimulatedLoop(Kernel(1))  # type: ignore[abstract]  # what it lacks it refuses

    async def main() -> None:
        while True:
            await asyncio.sleep(1)

    with pytest.raises(TimeoutError):
        loop.run(main(), until_us=5_000_000)
    loop.end()


def test_servers_and_processes_are_refused() -> None:
    loop = SimulatedLoop(Kernel(1))  # type: ignore[abstract]  # what it lacks it refuses

    for refused in (asyncio.start_server(lambda *_: None, port=0), asyncio.create_subprocess_exec("true")):
        with pytest.raises(NotImplementedError):
            loop.run(refused)


def test_work_for_a_thread_is_done_on_the_loop_between_two_events() -> None:
    loop = SimulatedLoop(Kernel(1))  # type: ignore[abstract]  # what it lacks it refuses

    async def main() -> tuple[int, float]:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(divmod, 1, 0)
        return await asyncio.to_thread(threading.get_ident), loop.time()

    assert loop.run(main()) == (threading.get_ident(), 0.0)


def test_the_digest_is_of_all_lines_and_the_last_can_be_read() -> None:
    asked_often, asked_once = Kernel(1), Kernel(1)
    for number in range(5 * LAST_LINES):
        for kernel in (asked_often, asked_once):
            kernel.trace(f"line {number}")
        if number % 7 == 0:
            asked_often.trace_sha256()
    assert asked_often.trace_sha256() == asked_once.trace_sha256()
    assert asked_once.last_lines() == asked_often.last_lines()
    assert [line.split()[-1] for line in asked_once.last_lines()] == [
        str(n) for n in range(4 * LAST_LINES, 5 * LAST_LINES)
    ]

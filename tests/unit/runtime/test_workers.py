"""Results of workers on the loop."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise

from oncelog.runtime.workers import DELIVERED_AT_ONCE, Workers


def test_a_thousand_results_leave_others_their_turn() -> None:
    """All are there before the loop looks; whatever else waits is not behind all of them."""
    count = 10 * DELIVERED_AT_ONCE
    delivered: list[int] = []
    at_others_turns: list[int] = []

    async def main() -> None:
        loop, finished = asyncio.get_running_loop(), threading.Semaphore(0)
        workers = Workers(loop, 1, "test")
        over = loop.create_future()

        def others() -> None:
            at_others_turns.append(len(delivered))
            if len(delivered) == count:
                over.set_result(None)
            else:
                loop.call_soon(others)

        for number in range(count):

            def work(number: int = number) -> object:
                finished.release()
                return lambda: delivered.append(number)

            workers.submit(work)  # type: ignore[arg-type]  # a lambda's None
        for _ in range(count):
            finished.acquire()
        workers.stop()
        loop.call_soon(others)
        await over

    asyncio.run(main())
    assert delivered == list(range(count))
    steps = [after - before for before, after in pairwise([0, *at_others_turns])]
    assert max(steps) <= DELIVERED_AT_ONCE


def test_a_result_that_raises_keeps_none_of_the_others() -> None:
    failures: list[object] = []

    async def main() -> None:
        loop, finished = asyncio.get_running_loop(), threading.Semaphore(0)
        loop.set_exception_handler(lambda _loop, context: failures.append(context["exception"]))
        workers = Workers(loop, 1, "test")
        over = loop.create_future()
        for result in (lambda: over.missing, lambda: over.set_result(None)):  # type: ignore[attr-defined]

            def work(result: object = result) -> object:
                finished.release()
                return result

            workers.submit(work)  # type: ignore[arg-type]
        for _ in range(2):
            finished.acquire()
        workers.stop()
        await over

    asyncio.run(main())
    assert [type(failure) for failure in failures] == [AttributeError]

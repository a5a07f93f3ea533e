"""A tree in a process of its own: its sessions are used from here, and the process can be stopped and killed.

``python -m tests.conformance.coordination.tree_process`` is the other side. Requests and answers are pickles on its
standard input and output; what a session follows comes in between.
"""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

from oncelog.coordination.sqlite.tree import SqliteTree
from oncelog.coordination.zookeeper.tree import ZooKeeperTree
from oncelog.ports import CommittedChange, Conflict, Coordination, Operation, TreeNode

ROOT = Path(__file__).parents[3]
ENDED = "ended"


def open_tree(kind: str, text: str, timeout_ms: int) -> Any:
    """The tree of an adapter: its ``session()`` and ``close()`` are used."""
    return {"sqlite": SqliteTree, "zookeeper": ZooKeeperTree}[kind](text, timeout_ms)


class TreeProcess:
    """A process in which trees are opened and used, one call at a time."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.conformance.coordination.tree_process"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._answers: SimpleQueue[Any] = SimpleQueue()
        self._listeners: dict[int, tuple[Callable[[CommittedChange], None], Callable[[], None]]] = {}
        self._follows = itertools.count(1)
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def open(self, kind: str, text: str, timeout_ms: int) -> RemoteTree:
        """Open a tree there. Raises what opening raises."""
        self.send("open", kind, text, timeout_ms)
        return self.opened()

    def opened(self) -> RemoteTree:
        """The tree whose opening was asked for by ``send``."""
        return RemoteTree(self, self.answer())

    def stop(self) -> None:
        """Let the process stand still."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let a process that stands still go on."""
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it with ``kill -9``, and see it gone."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def call(self, *request: Any) -> Any:
        """Have something done there; its result, or the exception it raised."""
        self.send(*request)
        return self.answer()

    def send(self, *request: Any) -> None:
        """Ask for something to be done there."""
        assert self._process.stdin is not None
        pickle.dump(request, self._process.stdin)
        self._process.stdin.flush()

    def answer(self) -> Any:
        """The answer to the oldest request that has none: its result, or the exception it raised."""
        answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, _Refused):
            raise Conflict(answer.operation)
        return answer

    def follow(self, listener: Callable[[CommittedChange], None], ended: Callable[[], None]) -> int:
        """The number by which the other side tells of changes to this listener."""
        number = next(self._follows)
        self._listeners[number] = (listener, ended)
        return number

    def _read(self) -> None:
        assert self._process.stdout is not None
        while True:
            try:
                number, content = pickle.load(self._process.stdout)
            except (EOFError, OSError, ValueError, pickle.UnpicklingError):
                self._answers.put(EOFError("the process has ended"))
                return
            if number == 0:
                self._answers.put(content)
            elif content == ENDED:
                self._listeners[number][1]()
            else:
                self._listeners[number][0](content)


class RemoteTree:
    """A tree that is open in a process."""

    def __init__(self, process: TreeProcess, tree_id: int) -> None:
        self._process = process
        self._tree_id = tree_id

    def session(self) -> Coordination:
        return RemoteSession(self._process, self._process.call("session", self._tree_id))

    def close(self) -> None:
        self._process.call("close", self._tree_id)


class RemoteSession:
    """A session in a process."""

    def __init__(self, process: TreeProcess, session_id: int) -> None:
        self._process = process
        self._session_id = session_id

    def _call(self, method: str, *arguments: Any) -> Any:
        return self._process.call("call", self._session_id, method, arguments)

    def read(self, path: str) -> TreeNode | None:
        return self._call("read", path)

    def children(self, path: str) -> list[str]:
        return self._call("children", path)

    def subtree(self, path: str) -> list[TreeNode]:
        return self._call("subtree", path)

    def snapshot(self) -> tuple[int, list[TreeNode]]:
        return self._call("snapshot")

    def position(self) -> int:
        return self._call("position")

    def position_at_once(self) -> int | None:
        return self._call("position_at_once")

    def commit(self, operations: Sequence[Operation], token: str = "") -> int:
        return self._call("commit", list(operations), token)

    def was_committed(self, token: str) -> bool:
        return self._call("was_committed", token)

    def follow(
        self,
        after: int,
        listener: Callable[[CommittedChange], None] | None,
        ended: Callable[[], None] | None = None,
    ) -> None:
        number = 0 if listener is None else self._process.follow(listener, ended or (lambda: None))
        self._process.call("follow", self._session_id, after, number)

    def renew(self) -> None:
        self._call("renew")

    def close(self) -> None:
        self._call("close")


class _Refused:
    """A Conflict as it travels."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation


class _OtherSide:
    def __init__(self) -> None:
        self._trees: dict[int, Any] = {}
        self._sessions: dict[int, Coordination] = {}
        self._ids = itertools.count(1)
        self._output = os.fdopen(os.dup(1), "wb")
        self._lock = threading.Lock()

    def run(self) -> None:
        while True:
            try:
                request, *arguments = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            self._tell(0, self._answer(request, arguments))

    def _answer(self, request: str, arguments: list[Any]) -> Any:
        try:
            return getattr(self, f"_{request}")(*arguments)
        except Conflict as error:
            return _Refused(error.operation)
        except Exception as error:  # noqa: BLE001 - raised on this side
            return error

    def _open(self, kind: str, text: str, timeout_ms: int) -> int:
        number = next(self._ids)
        self._trees[number] = open_tree(kind, text, timeout_ms)
        return number

    def _close(self, tree_id: int) -> None:
        self._trees.pop(tree_id).close()

    def _session(self, tree_id: int) -> int:
        number = next(self._ids)
        self._sessions[number] = self._trees[tree_id].session()
        return number

    def _call(self, session_id: int, method: str, arguments: Sequence[Any]) -> Any:
        return getattr(self._sessions[session_id], method)(*arguments)

    def _follow(self, session_id: int, after: int, number: int) -> None:
        def ended() -> None:
            self._tell(number, ENDED)

        def changed(change: CommittedChange) -> None:
            self._tell(number, change)

        self._sessions[session_id].follow(after, changed if number else None, ended)

    def _tell(self, number: int, content: Any) -> None:
        with self._lock:
            pickle.dump((number, content), self._output)
            self._output.flush()


if __name__ == "__main__":
    from tests.conformance.coordination import tree_process  # what is pickled here is found there by this name

    tree_process._OtherSide().run()

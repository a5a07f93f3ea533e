"""Turns programs into public operations, callable with a blocking client or an asyncio one (ADR 0016).

::

    @operation
    def create_topic(cluster: Cluster, new: NewTopic) -> Program[TopicId]:
        def attempt() -> Program[TopicId]:
            response = yield from cluster.request(CreateTopicsRequest(...), broker="controller")
            ...

        return (yield from cluster.retrying(attempt))

    create_topic(client, new)                      # blocking.Client: the result
    await create_topic(async_client, new)          # aio.AsyncClient: an awaitable of the same result
    topic_id = yield from create_topic(cluster, new)   # inside another program

Requests: ``cluster.request(message, broker="any" | "controller" | id)``, ``cluster.at_coordinator(key, message)``,
``cluster.leader(partition)``, ``cluster.link(broker)`` and ``call(link, message, version)`` where the version matters.
``parallel([...])`` runs programs side by side, ``Sleep(ms)`` pauses, ``cluster.now_ms()`` is the driver's clock.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

from oncelog.client.programs.cluster import Cluster
from oncelog.client.programs.steps import Program

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class BlockingRunner(Protocol):
    """A client that carries out programs and returns their results."""

    @property
    def cluster(self) -> Cluster:
        """The cluster that its programs use."""

    def run(self, program: Program[T]) -> T:
        """Carry out a program."""


class AsyncRunner(Protocol):
    """A client that carries out programs while it is awaited."""

    @property
    def cluster(self) -> Cluster:
        """The cluster that its programs use."""

    def run(self, program: Program[T]) -> Awaitable[T]:
        """Carry out a program."""


class Operation(Protocol[P, T_co]):
    """A program's public form: what comes back depends on the first argument."""

    @overload
    def __call__(self, client: Cluster, /, *args: P.args, **kwargs: P.kwargs) -> Program[T_co]: ...
    @overload
    def __call__(self, client: BlockingRunner, /, *args: P.args, **kwargs: P.kwargs) -> T_co: ...
    @overload
    def __call__(self, client: AsyncRunner, /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T_co]: ...


def operation(program: Callable[Concatenate[Cluster, P], Program[T]]) -> Operation[P, T]:
    """The public form of a program whose first parameter is the cluster."""

    @wraps(program)
    def run(client: Any, /, *args: Any, **kwargs: Any) -> Any:
        if isinstance(client, Cluster):
            return program(client, *args, **kwargs)
        return client.run(program(client.cluster, *args, **kwargs))

    client = inspect.Parameter("client", inspect.Parameter.POSITIONAL_ONLY, annotation="Client")
    show_signature(run, program, client)
    return cast("Operation[P, T]", run)


def show_signature(function: Callable[..., Any], program: Callable[..., Any], first: inspect.Parameter) -> None:
    """Let ``inspect`` and ``help`` show the public signature: ``first``, and the result of the blocking form."""
    signature = inspect.signature(program)
    others = list(signature.parameters.values())[1:]
    result = str(signature.return_annotation).removeprefix("Program[").removesuffix("]")
    shown = signature.replace(parameters=[first, *others], return_annotation=result)
    function.__signature__ = shown  # type: ignore[attr-defined]  # read by inspect

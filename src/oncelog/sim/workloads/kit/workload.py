"""The contract of workloads: topics they need, programs they run, drawn by seed.

A workload must come to an end by itself once ``host.stopping`` is true and the world is healed; it must write into the
recorder before it asks the broker for anything that could take effect, and complete it with what was answered; and its
values are unique in the whole simulation, because they begin with its name.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.sim.virtual.world import ClientHost, World
from oncelog.sim.workloads.kit.recorder import Recorder

PASSING: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""Errors that come from the state of the broker, to any request."""
FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
WRONG_ID: Final = frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING})
W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic to create at the start."""

    name: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    replication_factor: int = 1
    """−1: as the brokers have it by default."""

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(TopicName(self.name), index) for index in range(self.partitions)]


@dataclass(slots=True)
class WorkloadContext:
    """Shared by the programs of a simulation: world, recorder, version of transactions."""

    world: World
    recorder: Recorder
    transaction_version: int = 2

    @property
    def replication_factor(self) -> int:
        """The replication factor of topics that workloads create: the brokers' default where there are several."""
        return 1 if len(self.world.brokers) == 1 else -1

    def object(self, what: str) -> None:
        """An answer came that no broker may give: the simulation fails with it."""
        self.recorder.objections.append(f"S4 a wrong answer: {what}")

    def expect(self, request: str, code: int, *allowed: frozenset[ErrorCode]) -> None:
        """Object to any answer but these and those that pass."""
        if not any(code in codes for codes in (*allowed, PASSING)):
            self.object(f"{request}: answered {code}")

    def violated(self, what: str) -> None:
        """A rule, which ``what`` begins with, does not hold."""
        self.recorder.objections.append(what)

    def entropy(self, purpose: str) -> random.Random:
        return self.world.kernel.entropy(purpose)

    def supervise(self, name: str, program: Program) -> None:
        """Run a program on a host of its own, again and again until it returns."""

        async def run(host: ClientHost) -> None:
            await program(host)

        self.world.supervise(name, run)

    def launch(self, name: str, workload: W, program: type[WorkloadProgram[W]]) -> None:
        """Run a program of a workload, under this name."""
        self.supervise(name, program(self, workload, name))


class Program(Protocol):
    """A program for a client host."""

    async def __call__(self, host: ClientHost) -> None:
        """Run the program until the end; a ClientError or a kill starts it again."""


class Workload:
    """Topics and programs of one kind of load, as a value."""

    __slots__ = ()

    @property
    def leaves_open(self) -> bool:
        """True when the workload may leave transactions in two phases open for ever."""
        return False

    def topics(self) -> list[Topic]:
        """Topics to create before it starts."""
        raise NotImplementedError

    def start(self, context: WorkloadContext) -> None:
        """Have its programs supervised."""
        raise NotImplementedError

    async def record_final_state(self, context: WorkloadContext, client: AsyncClient) -> None:
        """When all is at rest: write down what else the broker says, such as committed offsets."""


class WorkloadProgram(Generic[W]):
    """A program of a workload, with a stream of chance of its own."""

    def __init__(self, context: WorkloadContext, workload: W, name: str) -> None:
        self.context = context
        self.workload: W = workload
        self.name = name
        self.entropy = context.entropy(name)
        self._values = 0

    def next_value(self) -> str:
        self._values += 1
        return f"{self.name}/{self._values}"

    async def __call__(self, host: ClientHost) -> None:
        raise NotImplementedError

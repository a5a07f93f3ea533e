"""The contract of workloads: the topics they need and the programs they run, drawn by seed.

A workload must end by itself once ``host.stopping`` is true and the world is repaired, and record each effect before it
sends the request, then complete the record with the response. Its values begin with its name, and so are unique in the
simulation.
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

# Errors for any request that depend on the broker's state.
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
FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
WRONG_ID: Final = frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING})
W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    # −1: the brokers' default.
    replication_factor: int = 1

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(TopicName(self.name), index) for index in range(self.partitions)]


@dataclass(slots=True)
class WorkloadContext:
    """Shared by all programs of a simulation: the world, the recorder and the transaction version."""

    world: World
    recorder: Recorder
    transaction_version: int = 2

    @property
    def replication_factor(self) -> int:
        """For topics that workloads create: the brokers' default in a cluster."""
        return 1 if len(self.world.brokers) == 1 else -1

    def report_unexpected(self, response: str) -> None:
        """Report a response that no broker may give: the simulation fails."""
        self.recorder.violations.append(f"S4 a wrong answer: {response}")

    def expect(self, request: str, code: int, *allowed: frozenset[ErrorCode]) -> None:
        """Report any response other than these and the passing errors."""
        if not any(code in codes for codes in (*allowed, PASSING)):
            self.report_unexpected(f"{request}: answered {code}")

    def report_violation(self, violation: str) -> None:
        """Report a violated rule, whose name starts the text."""
        self.recorder.violations.append(violation)

    def entropy(self, purpose: str) -> random.Random:
        return self.world.kernel.entropy(purpose)

    def supervise(self, name: str, program: Program) -> None:
        """Run a program on its own host, again and again until it returns."""

        async def run(host: ClientHost) -> None:
            await program(host)

        self.world.supervise(name, run)

    def launch(self, name: str, workload: W, program: type[WorkloadProgram[W]]) -> None:
        self.supervise(name, program(self, workload, name))


class Program(Protocol):
    async def __call__(self, host: ClientHost) -> None:
        """Run to the end. A ClientError or a kill restarts the program."""


class Workload:
    """Topics and programs of one kind of load, as a value."""

    __slots__ = ()

    @property
    def leaves_open(self) -> bool:
        """True if the workload may leave two-phase transactions open forever."""
        return False

    def topics(self) -> list[Topic]:
        raise NotImplementedError

    async def prepare(self, context: WorkloadContext, client: AsyncClient) -> None:
        """Before all programs and faults, when the topics exist."""

    def start(self, context: WorkloadContext) -> None:
        raise NotImplementedError

    async def record_final_state(self, context: WorkloadContext, client: AsyncClient) -> None:
        """At rest: record further state of the brokers, such as committed offsets."""


class WorkloadProgram(Generic[W]):
    """A program of a workload, with its own random stream."""

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

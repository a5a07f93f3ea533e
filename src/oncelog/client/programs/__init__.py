"""A client's operations as programs, which a blocking and an asyncio driver run (see ``steps`` and ``operation``)."""

from oncelog.client.programs.cluster import GROUP_KEY, TRANSACTION_KEY, Broker, Cluster
from oncelog.client.programs.operation import Operation, operation
from oncelog.client.programs.steps import Link, Program, Sleep, call, parallel, raise_for_error

__all__ = [
    "GROUP_KEY",
    "TRANSACTION_KEY",
    "Broker",
    "Cluster",
    "Link",
    "Operation",
    "Program",
    "Sleep",
    "call",
    "operation",
    "parallel",
    "raise_for_error",
]

"""Committed offsets of a group over a blocking client; the programs are ``programs.group``."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from oncelog.client.machine.offsets import Committed as Committed
from oncelog.client.machine.offsets import Membership as Membership
from oncelog.client.programs.group import commit_offsets as commit_offsets
from oncelog.client.programs.group import committed_offsets as committed_offsets
from oncelog.wire.message import Request, Response

if TYPE_CHECKING:
    from oncelog.client.blocking.client import Client

R = TypeVar("R", bound=Response)


def at_coordinator(
    client: Client, group: str, message: Request[R], *, at_most: int | None = None, timeout_ms: int | None = None
) -> R:
    """Send a request to a group's coordinator once. The caller looks at the error codes."""
    return client.run(client.cluster.at_coordinator(group, message, at_most=at_most, timeout_ms=timeout_ms))

"""The deadlines of a transaction shard; see ``base.timers``."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from oncelog.base.timers import Timers as Deadlines


class TimerKind(IntEnum):
    """The kinds of deadlines."""

    TIME_OUT = 0
    PARKED = 1
    COMPLETE = 2
    EXPIRY = 3


class TimerKey(NamedTuple):
    """Names one deadline: TIME_OUT and COMPLETE by transactional id, PARKED by token."""

    kind: TimerKind
    transactional_id: str = ""
    token: int = 0


Timers = Deadlines[TimerKey]

"""What a transaction shard has to do at some time; see ``base.timers``."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from oncelog.base.timers import Timers as Deadlines


class TimerKind(IntEnum):
    """What happens when a deadline passes."""

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

"""The deadlines of a group shard; see ``base.timers``."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from oncelog.base.timers import Timers as Deadlines


class TimerKind(IntEnum):
    """The kinds of deadlines."""

    SESSION = 0
    JOIN = 1
    SYNC = 2
    EXPIRY = 3


class TimerKey(NamedTuple):
    """Names one deadline: ``member_id`` is empty unless the kind is SESSION, ``group_id`` where it is EXPIRY."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


Timers = Deadlines[TimerKey]

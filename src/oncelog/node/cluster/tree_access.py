"""Carries out the effects on metadata over a session of the tree; used by the runtime, the simulator and tests.

Calls may block. A lost session is the outcome of the commit that finds it; one that no commit has found comes from
``follow`` (event ``SESSION_LOST``).
"""

from __future__ import annotations

from typing import Final

from oncelog.base.tree import CommitOutcome
from oncelog.core.controller.brokers.registration import Registration, RegistrationRefused, register
from oncelog.core.controller.image.cluster_image import load_image
from oncelog.node.kernel.events import (
    LoadMetadata,
    MetadataLoaded,
    MetadataWritten,
    NodesRead,
    ReadTree,
    SettleMetadata,
    WriteMetadata,
)
from oncelog.ports import CommitTooLarge, Conflict, Coordination, OutcomeUnknown, SessionLost, TreeUnavailable

SESSION_LOST: Final = MetadataWritten("", CommitOutcome.SESSION_LOST)
"""The tree has ended the session; belongs to no commit."""


def write(coordination: Coordination, effect: WriteMetadata) -> MetadataWritten:
    try:
        position = coordination.commit(effect.operations, effect.token)
    except Conflict:
        return _conflict(coordination, effect)
    except (TreeUnavailable, CommitTooLarge):
        return MetadataWritten(effect.token, CommitOutcome.UNAVAILABLE)
    except OutcomeUnknown:
        return MetadataWritten(effect.token, CommitOutcome.UNKNOWN)
    except SessionLost:
        return MetadataWritten(effect.token, CommitOutcome.SESSION_LOST)
    except Exception as error:  # noqa: BLE001 - any other failure of the tree goes to the node
        return MetadataWritten(effect.token, CommitOutcome.UNKNOWN, failure=error)
    return MetadataWritten(effect.token, CommitOutcome.COMMITTED, position)


def _conflict(coordination: Coordination, effect: WriteMetadata) -> MetadataWritten:
    try:
        return MetadataWritten(effect.token, CommitOutcome.CONFLICT, coordination.position())
    except TreeUnavailable:
        return MetadataWritten(effect.token, CommitOutcome.UNAVAILABLE)
    except SessionLost:
        return MetadataWritten(effect.token, CommitOutcome.SESSION_LOST)


def settle(coordination: Coordination, effect: SettleMetadata) -> MetadataWritten:
    try:
        was_committed = coordination.was_committed(effect.token)
        position = coordination.position()
    except (OutcomeUnknown, TreeUnavailable):
        return MetadataWritten(effect.token, CommitOutcome.UNKNOWN)
    except SessionLost:
        return MetadataWritten(effect.token, CommitOutcome.SESSION_LOST)
    outcome = CommitOutcome.COMMITTED if was_committed else CommitOutcome.UNAVAILABLE
    return MetadataWritten(effect.token, outcome, position if was_committed else 0)


def read_nodes(coordination: Coordination, effect: ReadTree) -> NodesRead:
    """Read nodes, and before them the tree's position."""
    try:
        position = coordination.position()
        nodes = [node for path in effect.paths if (node := coordination.read(path)) is not None]
    except (TreeUnavailable, SessionLost):
        return NodesRead(effect.token, None)
    return NodesRead(effect.token, nodes, position)


def load(coordination: Coordination, effect: LoadMetadata, registration: Registration, now_ms: int) -> MetadataLoaded:
    """Read the whole tree, after registering in a new session if the old one was lost. The caller must follow it from
    the event's position.
    """
    try:
        if effect.rejoin:
            coordination.renew()
            image = load_image(coordination.subtree("/"))
            coordination.commit(register(image, registration, now_ms))
        return MetadataLoaded(*coordination.snapshot())
    except SessionLost:
        return MetadataLoaded(0, None, session_lost=True)
    except RegistrationRefused as error:
        return MetadataLoaded(0, None, refused=str(error))
    except (Conflict, OutcomeUnknown, TreeUnavailable):
        return MetadataLoaded(0, None)

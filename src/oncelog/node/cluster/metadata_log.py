"""The cluster's metadata as this broker follows it: one ordered stream of committed changes, own commits included.

Commits are written by a worker, in order. The tree hands every committed change to every broker that follows it; only
these changes move the image on, so that it is what the tree was at one position.

Invariants:
1. The image is the tree at ``position``: a prefix of the order of all commits.
2. A commit is answered when the image has it; a conflict when the image has what it conflicted with, so that whoever
   asked decides again on what was in its way.
3. A commit whose answer was lost is neither repeated nor taken for refused: it is settled by its own token, in the
   stream or by asking.
4. A tree that cannot be reached, or a session that was lost, stops commits, and requests for a moment
   (``node.requests.pause_recovery``); then the broker serves on.
   A tree that failed in the middle of a write ends the node, for nobody knows what is on its disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.tree import CommitOutcome, Operation
from oncelog.core.controller.image.cluster_image import ImageDelta, load_image
from oncelog.core.controller.image.diff import delta_between
from oncelog.core.controller.image.model import UNKNOWN_BROKER_EPOCH
from oncelog.node.cluster.metadata import Metadata
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.node.kernel.events import (
    Fatal,
    LoadMetadata,
    MetadataChanged,
    MetadataLoaded,
    MetadataWritten,
    Outbox,
    Report,
    SettleMetadata,
    WriteMetadata,
)
from oncelog.node.kernel.tasks import Runnable, Task

if TYPE_CHECKING:
    from oncelog.handlers.broker.waits import CommitMetadata

RETRY_MS: Final = 500
"""The time between two attempts to reach the tree, to settle a commit or to come back with a new session."""

Done = Callable[[CommitOutcome], None]


@dataclass(slots=True)
class _Commit:
    done: Done
    gives_up_ms: int | None
    """The time from which on a lost answer is not waited for, ``request.timeout.ms`` after the request; None: never."""
    outcome: CommitOutcome = CommitOutcome.UNKNOWN
    position: int = 0
    """The position that the image has to reach before the outcome is told, once there is one."""
    is_settling: bool = False
    """The answer was lost."""


class MetadataLog:
    """Follows the tree's committed changes and writes this broker's own. ``apply`` follows each change of the image."""

    def __init__(
        self,
        metadata: Metadata,
        outbox: Outbox,
        runnable: Runnable,
        deadlines: Deadlines,
        apply: Callable[[ImageDelta], None],
    ) -> None:
        self._metadata = metadata
        self._outbox = outbox
        self._runnable = runnable
        self._deadlines = deadlines
        self._apply = apply
        self._commits: dict[str, _Commit] = {}
        """Commits under way by token, in the order in which they were asked for."""
        self._last_token = 0
        self._loading = False
        self._reloading = False
        """Another load follows the one under way, which may have read too early."""
        self.on_session_lost: list[Callable[[], None]] = []
        """Called when the tree has ended the session."""
        self._rejoining = False
        """The load under way registers this broker in a new session."""
        self.has_session = True
        """False from the loss of the session until this broker is registered in a new one."""
        self._registered_epoch = metadata.broker_epoch
        """Epoch of the registration by this broker itself; another one in the image, or none, is the work of others."""
        self._leaves = False
        self._refused: str | None = None
        """The reason, once told, why this broker may not register again."""

    def park(self, task: Task, wait: CommitMetadata) -> None:
        """Keep ``task`` until its commit has an outcome."""
        self.commit(wait.operations, partial(self._runnable.wake, task))

    def commit(self, operations: Sequence[Operation], done: Done, *, gives_up: bool = True) -> None:
        """Write ``operations``; call ``done`` with COMMITTED after the image has them, with CONFLICT after it has what
        they conflicted with, or with UNAVAILABLE: nothing was written, or (``gives_up``) it is not known after
        ``request.timeout.ms``."""
        if not self.has_session:
            done(CommitOutcome.UNAVAILABLE)
            return
        self._last_token += 1
        token = f"{self._metadata.broker_id}/{self._metadata.broker_epoch}/{self._last_token}"
        timeout_ms = int(self._metadata.config.get("request.timeout.ms"))
        self._commits[token] = _Commit(done, self._deadlines.now_ms + timeout_ms if gives_up else None)
        self._outbox.effects.append(WriteMetadata(token, operations))

    def leave(self) -> None:
        """Do not register again when others end the registration: this broker stops."""
        self._leaves = True

    def reload(self) -> None:
        """Begin to read the whole tree, and do so again if it is being read already."""
        if self._loading:
            self._reloading = True
        else:
            self._load(rejoin=not self.has_session)

    def is_current(self) -> bool:
        """True while there is a session, and nothing of the tree has still to be loaded."""
        return self.has_session and not self._loading

    def is_idle(self) -> bool:
        """True while no write is under way."""
        return not self._commits

    def changed(self, event: MetadataChanged) -> None:
        """Take over the next change; one that the image has already is passed over, after a gap all is loaded."""
        position = self._metadata.position
        if event.position <= position:
            return
        if event.position > position + 1:
            self._load(rejoin=False)
            return
        self._metadata.position = event.position
        self._apply(self._metadata.image.apply(event.changes))
        own = self._commits.get(event.token)
        if own is not None and own.outcome is CommitOutcome.UNKNOWN:
            own.outcome, own.position = CommitOutcome.COMMITTED, event.position
        self._tell_outcomes()
        self._check_registration()

    def written(self, event: MetadataWritten) -> None:
        """Take in the outcome of a commit."""
        if event.failure is not None:
            self._outbox.effects.append(Fatal(f"could not write the cluster's metadata: {event.failure}"))
            return
        if event.outcome is CommitOutcome.SESSION_LOST:
            self.lose_session()
        commit = self._commits.get(event.token)
        if commit is None:
            return  # settled by the stream
        if event.outcome is CommitOutcome.UNKNOWN:
            self._settle_later(event.token, commit)
            return
        lost = event.outcome is CommitOutcome.SESSION_LOST
        commit.outcome = CommitOutcome.UNAVAILABLE if lost else event.outcome
        # What a lost answer and a lost session leave open, the tree says as it is loaded in the next session.
        commit.position = self._metadata.position + 1 if lost and commit.is_settling else event.position
        self._tell_outcomes()

    def loaded(self, event: MetadataLoaded) -> None:
        """Go on from the whole tree, in a new session if the old one was lost."""
        self._loading = False
        if event.session_lost and self.has_session:
            self.lose_session()
            return
        if event.nodes is None:
            self._tell_refusal(event.refused)
            self._deadlines.at(self._deadlines.now_ms + RETRY_MS, self._load_again)
            return
        joined = self._rejoining
        if joined:
            self.has_session, self._refused = True, None
            self._outbox.effects.append(Report("info", "registered again in a new session of the coordination tree"))
        elif not self.has_session:
            self._load(rejoin=True)  # the session was lost while this was read
        if self._reloading:
            self._reloading = False
            self._load(rejoin=False)
        if joined or event.position > self._metadata.position:  # else changes that came meanwhile are newer
            self._metadata.position = event.position
            image = load_image(event.nodes)
            if joined:
                own = image.brokers.get(self._metadata.broker_id)
                self._registered_epoch = UNKNOWN_BROKER_EPOCH if own is None else own.epoch
            self._apply(delta_between(self._metadata.image, image))
        self._tell_outcomes()
        self._check_registration()

    def _tell_refusal(self, refused: str | None) -> None:
        """Report once why this broker may not register again. It serves what it has and goes on asking."""
        if refused is not None and refused != self._refused:
            self._refused = refused
            message = f"not registered again: {refused}. It is tried again until then"
            self._outbox.effects.append(Report("error", message))

    def lose_session(self) -> None:
        """The tree has ended this broker's session: commit nothing until it is registered in a new one."""
        if self.has_session:
            self.has_session = False
            message = "the session with the coordination tree was lost; serving on, without changes of metadata"
            self._outbox.effects.append(Report("warning", message))
            self._load(rejoin=True)
            for lost in self.on_session_lost:
                lost()

    def _check_registration(self) -> None:
        """Register again where others have ended the registration, taking this broker for dead."""
        if self._metadata.broker_epoch == self._registered_epoch or not self.has_session:
            return
        if self._loading or self._leaves:
            return
        self.has_session = False
        message = "others took this broker for dead and ended its registration; registering again"
        self._outbox.effects.append(Report("warning", message))
        self._load(rejoin=True)

    def _tell_outcomes(self) -> None:
        position = self._metadata.position
        for token, commit in list(self._commits.items()):
            if commit.outcome is not CommitOutcome.UNKNOWN and commit.position <= position:
                del self._commits[token]
                commit.done(commit.outcome)

    def _settle_later(self, token: str, commit: _Commit) -> None:
        commit.is_settling = True
        now_ms = self._deadlines.now_ms
        if commit.gives_up_ms is not None and now_ms >= commit.gives_up_ms:
            del self._commits[token]
            commit.done(CommitOutcome.UNAVAILABLE)
        else:
            self._deadlines.at(now_ms + RETRY_MS, partial(self._settle, token))

    def _settle(self, token: str, _now_ms: int) -> None:
        if token in self._commits:
            self._outbox.effects.append(SettleMetadata(token))

    def _load(self, *, rejoin: bool) -> None:
        if not self._loading:
            self._loading, self._rejoining = True, rejoin
            self._outbox.effects.append(LoadMetadata(rejoin))

    def _load_again(self, _now_ms: int) -> None:
        self._load(rejoin=not self.has_session)

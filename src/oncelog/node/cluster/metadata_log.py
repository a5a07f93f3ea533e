"""Follows the tree's committed changes, this broker's own included, and writes its commits.

A worker writes the commits, in order. Every follower gets every committed change in the same order. Invariants:

1. The image is the tree at ``position``: only the stream of changes, or a load of the whole tree, advances it.
2. A commit is answered when the image contains it, or the change that it conflicts with: the caller can decide again.
3. A commit whose answer was lost is neither repeated nor counted as refused: its token, found in the stream or by a
   query, settles it.
4. An unreachable tree, or a lost session, stops commits, and requests for a moment (``node.requests.pause_recovery``).
   A tree that failed in the middle of a write stops the node: the state of its disk is unknown.
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
"""Pause between attempts to reach the tree, to settle a commit, or to rejoin with a new session."""

Done = Callable[[CommitOutcome], None]


@dataclass(slots=True)
class _Commit:
    done: Done
    gives_up_ms: int | None
    """Time after which a lost answer is no longer awaited, ``request.timeout.ms`` after the request; None: never."""
    outcome: CommitOutcome = CommitOutcome.UNKNOWN
    position: int = 0
    """The position that the image must reach before the outcome is reported."""
    is_settling: bool = False
    """The answer was lost."""


class MetadataLog:
    """Follows the tree and writes this broker's commits; ``apply`` is called with each change of the image."""

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
        # Commits in flight by token, in order.
        self._commits: dict[str, _Commit] = {}
        self._last_token = 0
        self._loading = False
        # A second load must follow: the one in flight may have read too early.
        self._reloading = False
        self.on_session_lost: list[Callable[[], None]] = []
        """Called when the tree has ended the session."""
        # The load in flight also registers this broker in a new session.
        self._rejoining = False
        self.has_session = True
        """False from the loss of the session until this broker is registered in a new one."""
        # The epoch of this broker's own registration; any other in the image was made by another broker.
        self._registered_epoch = metadata.broker_epoch
        self._leaves = False
        # The reason why this broker may not register again; reported once.
        self._refused: str | None = None

    def park(self, task: Task, wait: CommitMetadata) -> None:
        self.commit(wait.operations, partial(self._runnable.wake, task))

    def commit(self, operations: Sequence[Operation], done: Done, *, gives_up: bool = True) -> None:
        """Write ``operations``. ``done`` gets COMMITTED once the image contains them, CONFLICT once it contains the
        conflicting change, or UNAVAILABLE: nothing was written, or (``gives_up``) the outcome is unknown after
        ``request.timeout.ms``.
        """
        if not self.has_session:
            done(CommitOutcome.UNAVAILABLE)
            return
        self._last_token += 1
        token = f"{self._metadata.broker_id}/{self._metadata.broker_epoch}/{self._last_token}"
        timeout_ms = int(self._metadata.config.get("request.timeout.ms"))
        self._commits[token] = _Commit(done, self._deadlines.now_ms + timeout_ms if gives_up else None)
        self._outbox.effects.append(WriteMetadata(token, operations))

    def leave(self) -> None:
        """Do not register again if another broker ends the registration: this broker is stopping."""
        self._leaves = True

    def reload(self) -> None:
        """Read the whole tree, once more if a load is already in flight."""
        if self._loading:
            self._reloading = True
        else:
            self._load(rejoin=not self.has_session)

    def is_current(self) -> bool:
        """True while there is a session and no load is pending."""
        return self.has_session and not self._loading

    def is_idle(self) -> bool:
        return not self._commits

    def changed(self, event: MetadataChanged) -> None:
        """Apply the next change. A change that the image has already is skipped; after a gap the whole tree is
        loaded."""
        position = self._metadata.position
        # A load has already brought this change.
        if event.position <= position:
            return
        # A gap: changes were missed.
        if event.position > position + 1:
            self._load(rejoin=False)
            return
        self._metadata.position = event.position
        self._apply(self._metadata.image.apply(event.changes))
        own = self._commits.get(event.token)
        if own is not None and own.outcome is CommitOutcome.UNKNOWN:
            own.outcome, own.position = CommitOutcome.COMMITTED, event.position
        self._report_outcomes()
        self._check_registration()

    def written(self, event: MetadataWritten) -> None:
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
        # The outcome of a lost answer shows in the tree when it is loaded in the next session.
        commit.position = self._metadata.position + 1 if lost and commit.is_settling else event.position
        self._report_outcomes()

    def loaded(self, event: MetadataLoaded) -> None:
        """Continue from the whole tree, in a new session if the old one was lost."""
        self._loading = False
        if event.session_lost and self.has_session:
            self.lose_session()
            return
        if event.nodes is None:
            self._report_refusal(event.refused)
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
        if joined or event.position > self._metadata.position:  # otherwise the stream is already further
            self._metadata.position = event.position
            image = load_image(event.nodes)
            if joined:
                own = image.brokers.get(self._metadata.broker_id)
                self._registered_epoch = UNKNOWN_BROKER_EPOCH if own is None else own.epoch
            self._apply(delta_between(self._metadata.image, image))
        self._report_outcomes()
        self._check_registration()

    def _report_refusal(self, refused: str | None) -> None:
        """Report, once, why this broker may not register again; it keeps serving and trying."""
        if refused is not None and refused != self._refused:
            self._refused = refused
            message = f"cannot register again: {refused}. The broker keeps trying"
            self._outbox.effects.append(Report("error", message))

    def lose_session(self) -> None:
        """The tree has ended the session: commit nothing until this broker is registered in a new one."""
        if self.has_session:
            self.has_session = False
            message = "the session with the coordination tree was lost; serving on, but metadata cannot be changed"
            self._outbox.effects.append(Report("warning", message))
            self._load(rejoin=True)
            for lost in self.on_session_lost:
                lost()

    def _check_registration(self) -> None:
        if self._metadata.broker_epoch == self._registered_epoch or not self.has_session:
            return
        if self._loading or self._leaves:
            return
        self.has_session = False
        message = "another broker took this one for dead and ended its registration; registering again"
        self._outbox.effects.append(Report("warning", message))
        self._load(rejoin=True)

    def _report_outcomes(self) -> None:
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

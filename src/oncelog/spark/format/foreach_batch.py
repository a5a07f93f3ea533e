"""``oncelog.spark.transaction``: several writes of one ``foreachBatch`` call that become visible together, once.

All writes of a block share one decision, made at its end; a block that raises aborts them. If Spark repeats an epoch
that was decided, the writes do nothing. Needs two-phase commit. See docs/spark-sink.md.
"""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from oncelog.client.errors import ClientError
from oncelog.spark.format.data_source import register
from oncelog.spark.session.errors import SinkError
from oncelog.spark.session.sessions import is_connect, known_error, query_of
from oncelog.spark.sink import epoch_commit, modes
from oncelog.spark.sink.options import Mode, SinkOptions, parse_sink_options
from oncelog.spark.sink.sink_client import open_client
from oncelog.spark.sink.two_phase.cluster_operations import ClusterOperations
from oncelog.spark.sink.two_phase.errors import Behind, Superseded
from oncelog.spark.sink.two_phase.register import JOB, ONE_WRITE, Attempt, Listed, Standing, standing
from oncelog.spark.sink.two_phase.register_records import decode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAX_NAME_LENGTH: Final = 200
PROBE: Final = "probe:"
# (query, epoch, run) of each decision in this process. A run has each epoch once, so a second one is not a replay.
_DECIDED_HERE: Final[set[tuple[str, int, str | None]]] = set()


class SinkTransaction:
    """An open transaction. ``is_done``: the epoch was decided before, and writes do nothing."""

    def __init__(self, attempt: Attempt, options: Mapping[str, str], directory: Path, *, is_done: bool) -> None:
        self.attempt = attempt
        # True if the user numbers the epochs and this is the first.
        self.may_begin_at_any_epoch = False
        self.is_done = is_done
        self._options = dict(options)
        self._directory = directory
        self._writes = 0

    def write(self, frame: DataFrame, **options: str) -> None:
        """Write a batch frame with the sink's columns. ``options`` (``topic=…``) add to those of the transaction.

        Raises SparkSourceError for a package that a server lacks, and for a Spark defect with a workaround.
        """
        if self.is_done:
            return
        if self.may_begin_at_any_epoch:
            options["acceptDuplicates"] = str(self.attempt.epoch)
        member = json.dumps([self.attempt.query, self.attempt.epoch, self.attempt.run, self._writes])
        self._writes += 1
        ours = {
            "exactlyOnce": Mode.TWO_PHASE.value,
            "oncelog.transaction.gather": str(self._directory),
            "oncelog.transaction.member": member,
        }
        from oncelog.spark.session.versions import active_session

        session = frame.sparkSession
        if not is_connect(session):
            register(session)  # Spark may not have found the format
        try:
            with active_session(session):
                frame.write.format("oncelog").mode("append").options(**{**self._options, **options, **ours}).save()
        except Exception as error:
            if (explained := known_error(error)) is not None:
                raise explained from error
            raise

    def listed(self) -> tuple[Listed, ...]:
        """The transactions that the writes left open. Raises SinkError if a write's file is missing."""
        paths = sorted(self._directory.glob("*.json"))
        if len(paths) != self._writes:
            raise SinkError(
                f"{len(paths)} of the transaction's {self._writes} writes have finished: nothing was decided"
            )
        return tuple(listed for path in paths for listed in decode(path.read_bytes()).listed)


@contextmanager
def transaction(
    frame: DataFrame, epoch: int, options: Mapping[str, str], *, query: str | None = None
) -> Iterator[SinkTransaction]:
    """Open a transaction for one epoch; ``query`` (default: the streaming query's id) and ``epoch`` identify it.

    Raises SinkError if the cluster has no two-phase commit or the query id is unknown: with Spark Connect it is known
    only if the query is the only one of its session.
    """
    parsed = parse_sink_options(options)
    running = None if query else query_of(frame)
    name = query or (running.query if running else None)
    if not name:
        raise SinkError(
            "the frame does not belong to a streaming query's foreachBatch: name the transaction with query=…"
        )
    _check_name(name)
    run = running.run if running else None
    # A run has each epoch once, so this is a second block for it, not a replay.
    if run is not None and (name, epoch, run) in _DECIDED_HERE:
        raise SinkError(
            f"epoch {epoch} was already decided by a transaction: put all writes into one block, or name the others "
            "with query=…"
        )
    attempt = Attempt(name, epoch, secrets.token_hex(8))
    is_done, is_new = _look_up(parsed, attempt)
    with tempfile.TemporaryDirectory(prefix="oncelog-sink-") as directory:
        transaction = SinkTransaction(attempt, options, Path(directory), is_done=is_done)
        transaction.may_begin_at_any_epoch = query is not None and is_new
        try:
            yield transaction
            listed = transaction.listed()
        except BaseException:
            with suppress(ClientError):
                epoch_commit.abort(parsed, attempt)
            raise
        epoch_commit.commit(parsed, attempt, listed)
        _DECIDED_HERE.add((name, epoch, run))


def _look_up(options: SinkOptions, attempt: Attempt) -> tuple[bool, bool]:
    """(True if the epoch was decided before, True if the query has no register yet)."""
    with open_client(options) as client, ClusterOperations(client, attempt.query) as cluster:
        missing = modes.two_phase_problem(client)
        if missing is not None:
            raise SinkError(f"a transaction of several writes needs two-phase commit: {missing}")
        register = cluster.register()
        state = standing(register, attempt)
        if state is Standing.STALE:
            raise Superseded(f"a newer run of epoch {attempt.epoch} of query {attempt.query} has begun: this run stops")
        if state is Standing.BEHIND and register is not None:
            if options.accept_loss is None or options.accept_loss < register.epoch:
                raise Behind(attempt.query, attempt.epoch, register.epoch)
            return True, False
        return state in (Standing.DECIDED, Standing.DONE), register is None


def _check_name(name: str) -> None:
    """Raise SinkError for a name that could collide with another query's: ids have parts between slashes."""
    if not 1 <= len(name) <= MAX_NAME_LENGTH or "/" in name or "\0" in name or name.startswith((JOB, ONE_WRITE, PROBE)):
        raise SinkError(
            f"query={name!r} cannot name a transaction: it needs 1 to {MAX_NAME_LENGTH} characters without '/', "
            f"not beginning with {JOB}, {ONE_WRITE} or {PROBE}"
        )

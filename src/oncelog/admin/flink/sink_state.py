"""Reads the state of Flink's ``KafkaSink``: transactions to commit, and the prefixes of the sink's transactional ids.

A named state has elements, each an int32 length and bytes, at the offsets that the metadata lists. The bytes are a
version, a length, and:

- ``streaming_committer_raw_states``, of the committer: version 2 is a magic number and checkpoints, each with subtasks,
  each with commit requests, each with a committable; version 1 is a magic number and committables. A Kafka committable
  is version 1: producer epoch (int16), producer id (int64), transactional id.
- ``writer_raw_states``, of the writer: the prefix of transactional ids; since version 2 also the subtask, their number,
  the ownership, and the ids that are prepared, each with its checkpoint.

Other sinks have states of the same names. Their committables are counted as foreign, not as damage; bytes around a
committable that do not fit are damage.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from oncelog.admin.flink.data_input import DataInput, FlinkStateError
from oncelog.client.machine.transaction_values import StoredTransaction

COMMITTER_STATE: Final = "streaming_committer_raw_states"
WRITER_STATE: Final = "writer_raw_states"
_FIRST_STREAM_WITH_COMPRESSION: Final = 6
"""The version of an operator state's bytes that has a flag for compression behind it."""
_MAGIC: Final = -1189141204
_FINAL_STATES: Final = (2, 3)
"""Commit requests that failed for good, or were carried out."""


@dataclass(slots=True)
class SinkState:
    """The transactions of all Kafka sinks of a checkpoint.

    ``committables`` maps each transaction that is to be committed to its checkpoint id (None before Flink 1.17).
    ``prepared`` are ids that writers count on. ``foreign`` counts committables of other sinks.
    """

    committables: dict[StoredTransaction, int | None] = field(default_factory=dict)
    prefixes: set[str] = field(default_factory=set)
    prepared: set[str] = field(default_factory=set)
    foreign: int = 0

    def owns(self, transactional_id: str) -> bool:
        """True for an id that a writer of this job makes: prefix, subtask and number."""
        return any(
            transactional_id.startswith(prefix) and _OWN_SUFFIX(transactional_id, len(prefix))
            for prefix in self.prefixes
        )


_OWN_SUFFIX: Final = re.compile(r"-\d{1,10}-\d{1,19}\Z", re.ASCII).match


def check_stream(content: memoryview, name: str) -> None:
    """Raises FlinkStateError for an operator state whose elements cannot be read: it is compressed."""
    given = DataInput(content, name)
    if given.left > 4 and given.int32() >= _FIRST_STREAM_WITH_COMPRESSION and given.byte():
        raise FlinkStateError(
            f"{name} is compressed (execution.checkpointing.snapshot-compression), which is not supported; take the "
            "identities from the job's log, and give them to oncelog txn commit"
        )


def add_committer_state(element: memoryview, name: str, sink: SinkState) -> None:
    """Add the committables of one element. Raises FlinkStateError."""
    given = DataInput(element, name)
    version, collector = given.int32(), DataInput(given.blob(), name)
    if version not in (1, 2):
        raise given.error(f"a committer's state has version {version}; 1 and 2 are supported")
    if collector.int32() != _MAGIC:
        raise collector.error("a committer's state has a wrong magic number")
    if version == 2:
        _checkpoints(collector, name, sink)
    else:
        kind = collector.int32()
        for _ in range(collector.count("committables")):
            _add(kind, collector.blob(), name, None, sink)
    collector.finish()


def _checkpoints(collector: DataInput, name: str, sink: SinkState) -> None:
    version = collector.int32()
    for _ in range(collector.count("checkpoints")):
        checkpoint = DataInput(collector.blob(), name)
        checkpoint_id = checkpoint.int64()
        if version >= 1:
            checkpoint.int32()  # the number of subtasks
        subtask_version = checkpoint.int32()
        for _ in range(checkpoint.count("subtasks")):
            _subtask(DataInput(checkpoint.blob(), name), name, subtask_version, checkpoint_id, sink)
        checkpoint.finish()


def _subtask(subtask: DataInput, name: str, version: int, checkpoint_id: int, sink: SinkState) -> None:
    if version >= 1:
        subtask.int32()
    subtask.int32()  # the version of requests
    for _ in range(subtask.count("commit requests")):
        request = DataInput(subtask.blob(), name)
        kind, committable = request.int32(), request.blob()
        request.int32()  # the number of retries
        state = request.int32()
        request.finish()
        if state not in _FINAL_STATES:
            _add(kind, committable, name, checkpoint_id, sink)


def _add(version: int, committable: memoryview, name: str, checkpoint_id: int | None, sink: SinkState) -> None:
    """Add one committable, if it is Kafka's: it has to fit to the last byte."""
    given = DataInput(committable, name)
    try:
        epoch, producer_id, transactional_id = given.int16(), given.int64(), given.text()
        given.finish()
    except FlinkStateError:
        sink.foreign += 1
        return
    if version != 1 or epoch < 0 or producer_id < 0 or not transactional_id:
        sink.foreign += 1
        return
    sink.committables[StoredTransaction(transactional_id, producer_id, epoch)] = checkpoint_id


def add_writer_state(element: memoryview, name: str, sink: SinkState) -> None:
    """Add the prefix and the prepared ids of one element; other sinks' elements are left out."""
    given = DataInput(element, name)
    version, state = given.int32(), DataInput(given.blob(), name)
    try:
        prefix = state.text()
        prepared = []
        if version == 2:
            state.take(12)  # the subtask, the number of subtasks, the ownership
            for _ in range(state.count("prepared transactions")):
                prepared.append(state.text())
                state.int64()
        state.finish()
    except FlinkStateError:
        return
    if version in (1, 2) and prefix:
        sink.prefixes.add(prefix)
        sink.prepared.update(prepared)

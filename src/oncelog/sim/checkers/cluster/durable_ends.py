"""How far the replicas of a partition surely are on a machine's disk, by its files alone.

Segments are read by their headers from where the last look ended; a batch that is not as it was then starts it over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oncelog.base.ids import TopicPartition
from oncelog.records.batch import HEADER_SIZE, CorruptBatch, read_header
from oncelog.sim.virtual.file_node import FileNode
from oncelog.sim.virtual.files import MemoryFiles
from oncelog.storage.file_names import LOG, parse_segment_file


@dataclass(slots=True)
class _Look:
    """Findings in the durable bytes of a segment: the last batch's place and header, and what follows it."""

    node: FileNode
    position: int
    header: bytes
    following: int
    size: int


class DurableEnds:
    def __init__(self, files: MemoryFiles) -> None:
        self.files = files
        self._looks: dict[str, _Look] = {}

    def end(self, partition: TopicPartition) -> int:
        """The offset behind the last record that survives a power cut, 0 where there is no log."""
        return self._end(partition, self.files.durable_files(str(partition)))

    def end_before_changes(self, partition: TopicPartition) -> int:
        """The same by the names of the directory's last sync: retention may have renamed segments that end before one
        that has no durable name yet, and a power cut brings back both or neither."""
        return self._end(partition, self.files.files_before_changes(str(partition)))

    def _end(self, partition: TopicPartition, files: Sequence[tuple[str, FileNode]]) -> int:
        end = 0
        segments = sorted(_segments(partition, files))
        for index, (base, path, node) in enumerate(segments):
            if index + 1 < len(segments) and not node.rewritten and len(node.durable) == len(node.data):
                continue  # complete: the next one tells where it ends
            end = self._end_of(path, node, base)
            if node.rewritten or len(node.durable) < len(node.data):
                break
        return end

    def _end_of(self, path: str, node: FileNode, base: int) -> int:
        durable = node.durable
        look = self._looks.get(path)
        if look is not None and look.node is node and _is_there(look, durable):
            position, following, header = look.position + look.size, look.following, look.header
            last, size = look.position, look.size
        else:
            position, following, header, last, size = 0, base, b"", 0, 0
        while position + HEADER_SIZE <= len(durable):
            raw = bytes(durable[position : position + HEADER_SIZE])
            try:
                found = read_header(raw, 0)
            except CorruptBatch:
                break
            if position + found.size_bytes > len(durable):
                break
            last, header, size, following = position, raw, found.size_bytes, found.next_offset
            position += size
        self._looks[path] = _Look(node, last, header, following, size)
        return following


def _segments(partition: TopicPartition, files: Sequence[tuple[str, FileNode]]) -> Iterator[tuple[int, str, FileNode]]:
    skip = len(str(partition)) + 1
    for path, node in files:
        parsed = parse_segment_file(path[skip:])
        if parsed is not None and parsed[1] == LOG and not parsed[2]:
            yield parsed[0], path, node


def _is_there(look: _Look, durable: bytearray) -> bool:
    return durable[look.position : look.position + HEADER_SIZE] == look.header

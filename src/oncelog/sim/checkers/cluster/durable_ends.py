"""Finds how far each replica's log is durable, from the files of a machine's disk alone.

Headers are read from the end of the last scan on, or all again if the last batch has changed.
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
class _Scan:
    """The last durable batch's position, header and size, and the offset after it."""

    node: FileNode
    position: int
    header: bytes
    following: int
    size: int


class DurableEnds:
    def __init__(self, files: MemoryFiles) -> None:
        self.files = files
        self._scans: dict[str, _Scan] = {}

    def end(self, partition: TopicPartition) -> int:
        """The offset after the last record that survives a power cut; 0 without a log."""
        return self._end(partition, self.files.durable_files(str(partition)))

    def end_before_changes(self, partition: TopicPartition) -> int:
        """The same, with the file names as of the directory's last sync."""
        # Retention may have renamed segments that end before one whose name is not durable yet. A power cut undoes both
        # changes or neither.
        return self._end(partition, self.files.files_before_changes(str(partition)))

    def _end(self, partition: TopicPartition, files: Sequence[tuple[str, FileNode]]) -> int:
        end = 0
        segments = sorted(_segments(partition, files))
        for index, (base, path, node) in enumerate(segments):
            if index + 1 < len(segments) and not node.rewritten and len(node.durable) == len(node.data):
                continue  # complete: it ends where the next one starts
            end = self._end_of(path, node, base)
            if node.rewritten or len(node.durable) < len(node.data):
                break
        return end

    def _end_of(self, path: str, node: FileNode, base: int) -> int:
        durable = node.durable
        scan = self._scans.get(path)
        if scan is not None and scan.node is node and _is_unchanged(scan, durable):
            position, following, header = scan.position + scan.size, scan.following, scan.header
            last, size = scan.position, scan.size
        else:
            position, following, header, last, size = 0, base, b"", 0, 0
        while position + HEADER_SIZE <= len(durable):
            raw = bytes(durable[position : position + HEADER_SIZE])
            try:
                batch = read_header(raw, 0)
            except CorruptBatch:
                break
            if position + batch.size_bytes > len(durable):
                break
            last, header, size, following = position, raw, batch.size_bytes, batch.next_offset
            position += size
        self._scans[path] = _Scan(node, last, header, following, size)
        return following


def _segments(partition: TopicPartition, files: Sequence[tuple[str, FileNode]]) -> Iterator[tuple[int, str, FileNode]]:
    skip = len(str(partition)) + 1
    for path, node in files:
        parsed = parse_segment_file(path[skip:])
        if parsed is not None and parsed[1] == LOG and not parsed[2]:
            yield parsed[0], path, node


def _is_unchanged(scan: _Scan, durable: bytearray) -> bool:
    return durable[scan.position : scan.position + HEADER_SIZE] == scan.header

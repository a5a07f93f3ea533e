"""The first bytes of many records at once: length, attributes, timestamp and offset, from one 8-byte word per record.

The high bits of a record's first eight bytes tell where each of its first varints ends: its *layout*. The records of a
fetch have a handful of layouts. Heads longer than eight bytes, and chunks with many layouts, are left to
``varint_columns``.
"""

from __future__ import annotations

from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt

from oncelog.records.columns.varint_columns import ByteView, Positions

_WORD_BYTES: Final = 8
_CONTINUATION_BITS: Final = np.uint64(0x8080808080808080)
_GATHER_BITS: Final = np.uint64(0x0102040810204080)
"""Multiplied with eight high bits, gathers them in the highest byte, the first byte's bit lowest."""
_LAYOUTS: Final = [
    widths for widths in product((1, 2), range(1, 6), range(1, 5)) if 1 + sum(widths) <= _WORD_BYTES
]  # fmt: skip
"""Widths of length, timestamp and offset, with a byte of attributes after the first."""


def _layout_table() -> npt.NDArray[np.intp]:
    """High bits of the first eight bytes → index in ``_LAYOUTS``, or −1."""
    table = np.full(1 << _WORD_BYTES, -1, np.intp)
    for number, (length, timestamp, offset) in enumerate(_LAYOUTS):
        ends = [length - 1, length, length + timestamp, length + timestamp + offset]
        head = (1 << (ends[-1] + 1)) - 1
        high = head & ~sum(1 << end for end in ends)
        table[(np.arange(1 << _WORD_BYTES) & head) == high] = number
    return table


_LAYOUT: Final = _layout_table()


def read_heads(view: ByteView, starts: Positions, max_layouts: int) -> tuple[Positions, Positions, Positions] | None:
    """Timestamp delta, offset delta and the position after it for the records at ``starts``; None if heads are too long
    or have too many layouts. Checks only that the varints end."""
    words = view.words[starts]
    bits = (((words & _CONTINUATION_BITS) >> np.uint64(7)) * _GATHER_BITS) >> np.uint64(56)
    layouts = _LAYOUT[bits.astype(np.intp)]
    if int(layouts.min(initial=0)) < 0:
        return None
    counts = np.bincount(layouts)
    present = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)].tolist()
    if len(present) > max_layouts:
        return None
    usual = _LAYOUTS[present[0]]
    timestamps, offsets = _deltas(
        words, usual
    )  # wrong for other layouts, which are corrected below; cheaper than a selection
    positions = starts + (1 + sum(usual))
    for layout in present[1:]:
        some = np.flatnonzero(layouts == layout)
        timestamps[some], offsets[some] = _deltas(words[some], _LAYOUTS[layout])
        positions[some] = starts[some] + (1 + sum(_LAYOUTS[layout]))
    return timestamps, offsets, positions


# For the records of one layout every field is one shift and one mask.
def _deltas(words: npt.NDArray[np.uint64], layout: tuple[int, int, int]) -> tuple[Positions, Positions]:
    length, timestamp, offset = layout
    return _varint(words, length + 1, timestamp), _varint(words, length + 1 + timestamp, offset)


def _varint(words: npt.NDArray[np.uint64], at: int, width: int) -> Positions:
    """The zigzag varint of ``width`` bytes that begins at byte ``at`` of each word."""
    unsigned = words >> np.uint64(8 * at)
    low = unsigned & np.uint64(0x7F)
    for byte in range(1, width):
        low |= (unsigned >> np.uint64(byte)) & np.uint64(0x7F << (7 * byte))
    values = (low >> np.uint64(1)).view(np.int64)
    values ^= -(low & np.uint64(1)).view(np.int64)
    return values

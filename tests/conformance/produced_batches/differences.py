"""Answers in which the broker differs from Apache Kafka on purpose, each with its reason."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final, NamedTuple


class Difference(NamedTuple):
    """An answer to cases whose names match a pattern, in groups whose names do."""

    case: str
    group: str
    kafkas: str
    ours: str
    reason: str

    def covers(self, group: str, case: str, kafkas: str, ours: str) -> bool:
        """True if it explains the two answers to a case."""
        patterns = (self.group, self.case, self.kafkas, self.ours)
        return all(map(fnmatchcase, (group, case, kafkas, ours), patterns))


_UNREADABLE: Final = "UNKNOWN_SERVER_ERROR"
_DIED: Final = "Apache Kafka meets an error of its own; the batch is refused either way"
_NO_READER: Final = "Apache Kafka's broker passes the length over, and its consumers cannot read past the record"
_AFTER: Final = "readers by other libraries stop at bytes after the frame, where Java's do not look"
_LATEST: Final = "the flag goes, and with it the time in the header: the latest timestamp is that of the records"
_NEGATIVE: Final = "Apache Kafka cannot build a batch that begins before 1970 and meets an error of its own"

DIFFERENCES: Final = (
    Difference("bytes 0xff alone", "records-none", _UNREADABLE, "INVALID_RECORD", _DIED),
    Difference("length in 6 bytes, *", "records-none", _UNREADABLE, "INVALID_RECORD", _DIED),
    Difference("length of 2 GiB", "headers-*", _UNREADABLE, "INVALID_RECORD", _DIED),
    Difference("no bytes", "payloads-zstd", "INVALID_RECORD", _UNREADABLE, "no bytes are no frame"),
    Difference("length ?* record", "records-*", "stored", "INVALID_RECORD", _NO_READER),
    Difference(
        "offset delta ?* record",
        "*",
        "stored*",
        "stored, built anew, other records*",
        "the records get the offsets that they should have had; consumers of Apache Kafka's would pass over some",
    ),
    Difference("offset delta ?* record", "*", _UNREADABLE, "INVALID_RECORD", _DIED),
    Difference("* more", "payloads-*", "stored", _UNREADABLE, _AFTER),
    Difference("two frames", "payloads-snappy", "stored", _UNREADABLE, _AFTER),
    Difference("two frames", "payloads-lz4", "INVALID_RECORD", _UNREADABLE, _AFTER),
    Difference("a second header", "payloads-snappy", "stored", _UNREADABLE, _AFTER),
    Difference("reserved flags", "payloads-gzip", "stored", _UNREADABLE, "RFC 1952 has them be zero"),
    Difference(
        "wrong content checksum", "payloads-lz4", "stored", _UNREADABLE, "Java passes it over, other readers do not"
    ),
    Difference("append time of the producer *", "*headers-*", "stored*", "stored*", _LATEST),
    Difference("attributes 0x?*8", "*headers-*", "stored*other records*", "stored*", _LATEST),
    Difference("timestamps *", "*headers-*", _UNREADABLE, "stored, built anew*", _NEGATIVE),
    Difference("timestamp delta *", "lz4-append-time-records-none", _UNREADABLE, "stored, built anew*", _NEGATIVE),
)


def unexplained(
    group: str, kafkas: dict[str, str], ours: dict[str, str]
) -> tuple[dict[str, tuple[str, str]], set[Difference]]:
    """Cases of a group whose answers differ for no reason, with both; and the reasons that others have."""
    differ = {
        case: (kafkas.get(case, "not asked"), answer) for case, answer in ours.items() if kafkas.get(case) != answer
    }
    used: set[Difference] = set()
    for case, answers in list(differ.items()):
        result = next((difference for difference in DIFFERENCES if difference.covers(group, case, *answers)), None)
        if result is not None:
            used.add(result)
            del differ[case]
    return differ, used

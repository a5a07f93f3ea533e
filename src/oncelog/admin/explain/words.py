"""Words of reports: numbers with their nouns, lists of names."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    """``1 record``, ``1,204 records``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def joined(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return "".join(names) if len(names) < 2 else f"{', '.join(names[:-1])} and {names[-1]}"


def shortened(names: Sequence[object], most: int = 5) -> str:
    """The first names, and how many more there are."""
    text = ", ".join(map(str, names[:most]))
    return text if len(names) <= most else f"{text} and {len(names) - most} more"


def kafka_options(options: str) -> str:
    """The options that name the cluster for one of Apache Kafka's tools, which have no default."""
    given = options.removesuffix(" -X …").replace("--bootstrap-servers", "--bootstrap-server")
    return given if "--bootstrap-server" in given else f" --bootstrap-server localhost:9092{given}"

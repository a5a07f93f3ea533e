"""``meta.properties`` at the root of a data directory: its owner and its format.

The keys are Apache Kafka's, so that its tools can read the file: ``version`` (1), ``cluster.id``, ``node.id``,
``directory.id``; and our own ``oncelog.version``, which must not be newer than this program's.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog.base.ids import BrokerId
from oncelog.base.notation.java_properties import PropertiesError, decode_properties, parse_properties
from oncelog.ports import Files
from oncelog.storage.checkpoints import number, read_file, replace_file
from oncelog.storage.errors import UnusableDirectory
from oncelog.storage.file_names import META_PROPERTIES

KAFKA_VERSION: Final = 1
FORMAT_VERSION: Final = 1


class MetaProperties(NamedTuple):
    """Ids in the text form of Apache Kafka (22 characters)."""

    cluster_id: str
    node_id: BrokerId
    directory_id: str


def read_meta_properties(files: Files) -> MetaProperties | None:
    """None for a new directory. Raises UnusableDirectory for a newer or damaged format."""
    data = read_file(files, META_PROPERTIES)
    if data is None:
        return None
    try:
        values = parse_properties(decode_properties(data))
    except PropertiesError as error:
        raise UnusableDirectory(f"{META_PROPERTIES}: {error}") from None
    for key, supported in (("version", KAFKA_VERSION), ("oncelog.version", FORMAT_VERSION)):
        text = values.get(key, str(supported))
        if number(text, supported) is None:
            raise UnusableDirectory(
                f"{META_PROPERTIES}: {key}={text} is not supported; this program reads versions up to {supported}: "
                "start the broker with the version of oncelog that wrote it"
            )
    try:
        node_id = int(values.get("node.id", values.get("broker.id", "")))
        return MetaProperties(values["cluster.id"], BrokerId(node_id), values.get("directory.id", ""))
    except (KeyError, ValueError):
        raise UnusableDirectory(f"{META_PROPERTIES}: cluster.id or node.id is missing or invalid") from None


def write_meta_properties(files: Files, properties: MetaProperties) -> None:
    lines = (
        "#",
        f"cluster.id={properties.cluster_id}",
        f"directory.id={properties.directory_id}",
        f"node.id={properties.node_id}",
        f"oncelog.version={FORMAT_VERSION}",
        f"version={KAFKA_VERSION}",
        "",
    )
    replace_file(files, META_PROPERTIES, "\n".join(lines).encode())

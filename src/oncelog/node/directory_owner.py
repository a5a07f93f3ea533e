"""The owner of a data directory's logs: an identity, and a cluster with their topics."""

from __future__ import annotations

from oncelog.base.ids import BrokerId, partition_of_directory
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.ports import Files
from oncelog.storage.errors import UnusableDirectory
from oncelog.storage.file_names import LOG, META_PROPERTIES, PARTITION_METADATA, parse_segment_file
from oncelog.storage.meta_properties import MetaProperties


def check_logs_have_an_owner(
    files: Files, properties: MetaProperties | None, image: ClusterImage, configured: BrokerId | None
) -> None:
    """Refuse logs without an identity or a cluster: they would be set aside, or their broker fenced as new. Raises
    UnusableDirectory."""
    record = None if properties is None else image.broker_records.get(properties.node_id)
    has_id = properties is not None and (properties.directory_id or record is None or not record.directory_id)
    if has_id and image.cluster_id is not None:
        return
    log = next((name for name in files.list("") if _is_log(files, name)), None)
    if log is None:
        return
    if image.cluster_id is None:
        cluster = "" if properties is None else f" of cluster {properties.cluster_id}"
        raise UnusableDirectory(
            f"the coordination tree is empty, but the directory has logs ({log}){cluster}: if zookeeper.connect and "
            "oncelog.tree.path are right, restore the tree and the directory from a backup; a new cluster begins in an "
            "empty directory"
        )
    if properties is None:
        raise UnusableDirectory(
            f"{META_PROPERTIES} is missing, but the directory has logs ({log}): restore the file from a backup, or "
            f"write one with the lines cluster.id={image.cluster_id} and {_own_lines(image, configured)}"
        )
    assert record is not None
    raise UnusableDirectory(
        f"{META_PROPERTIES} has no directory.id, but the directory has logs ({log}): if it is that of node "
        f"{properties.node_id}, add the line directory.id={record.directory_id}"
    )


def _is_log(files: Files, name: str) -> bool:
    partition = partition_of_directory(name)
    if partition is None or str(partition) != name:
        return False
    try:
        names = files.list(name)
    except NotADirectoryError:
        return False
    return PARTITION_METADATA in names or any((parse_segment_file(inner) or ("", ""))[1] == LOG for inner in names)


def _own_lines(image: ClusterImage, configured: BrokerId | None) -> str:
    """The lines of ``meta.properties`` that only this broker has, as far as the tree knows them."""
    records = image.broker_records
    if not records:
        return "node.id={the id that this broker had}"
    absent = [broker_id for broker_id in records if broker_id not in image.brokers]
    candidates = [configured] if configured is not None and configured in records else sorted(absent or records)
    lines = [
        f"node.id={broker_id}" + (f" directory.id={identity}" if (identity := records[broker_id].directory_id) else "")
        for broker_id in candidates
    ]
    return lines[0] if len(lines) == 1 else "those that this broker had: " + ", or ".join(lines)

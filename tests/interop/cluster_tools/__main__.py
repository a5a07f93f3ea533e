"""Record the session on Apache Kafka, or on ours: ``python -m tests.interop.cluster_tools [--ours] [FILE]``."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.cluster.brokers import Cluster
from tests.interop.cluster_tools.script import play
from tests.interop.cluster_tools.session import Session
from tests.interop.cluster_tools.test_cluster_tools import BOTH, OURS, RECORDED
from tests.peers.apache_kafka_cluster import ApacheKafkaCluster


def main() -> None:
    """Record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--parts", nargs="*", default=())
    parser.add_argument("file", nargs="?", type=Path, default=RECORDED)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cluster-tools-") as name:
        directory = Path(name)
        brokers = (
            Cluster(directory, base=BOTH, properties=OURS)
            if options.ours
            else ApacheKafkaCluster(directory, properties=BOTH)
        )
        with brokers:
            session = Session(brokers, directory)
            try:
                play(session, options.parts)
            finally:
                options.file.write_text("\n".join(session.transcript), encoding="utf-8")


if __name__ == "__main__":
    main()

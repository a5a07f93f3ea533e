"""Record the golden corpus against Apache Kafka: `python -m tests.conformance.golden.record [CLIENT…]`.

Every scenario of every client gets a fresh broker, so that each recording stands alone. Clients whose language is not
installed are named and passed over; their recordings stay as they are.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from typing import Final

from tests.conformance.golden.corpus import DATA, properties_of, warm_up
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.clients.scenario import Scenario
from tests.peers.clients.sweep.wire import UNRECORDED
from tests.peers.process import free_ports
from tests.peers.recorder import Direction, Event, Recorder, save
from tests.peers.supply import PeerMissing

CLIENTS: Final = {
    "confluent-kafka": ("confluent", "SCENARIOS"),
    "confluent-kafka-admin": ("confluent_admin", "SCENARIOS"),
    "kafka-python": ("kafka_python", "SCENARIOS"),
    "aiokafka": ("aio_kafka", "SCENARIOS"),
    "confluent-kafka-transactions": ("confluent_transactions", "SCENARIOS"),
    "kafka-python-transactions": ("kafka_python_transactions", "SCENARIOS"),
    "aiokafka-transactions": ("aio_kafka_transactions", "SCENARIOS"),
    "java": ("java", "SCENARIOS"),
    "java-transactions": ("java_transactions", "SCENARIOS"),
    "franz-go": ("foreign", "FRANZ_GO"),
    "kafkajs": ("foreign", "KAFKAJS"),
    "sweep": ("sweep", "SCENARIOS"),
}
LEFT_OUT: Final = (
    b"AddPartitionsManager-",
    b"NetworkPartitionMetadataClient-",
    b"Persister-",
    b"broker-",
    UNRECORDED.encode(),
)


def scenarios(client: str) -> dict[str, Scenario]:
    """All scenarios of a client by name."""
    module, attribute = CLIENTS[client]
    result: dict[str, Scenario] = getattr(importlib.import_module(f"tests.peers.clients.{module}"), attribute)
    return result


def of_clients(events: list[Event]) -> list[Event]:
    """Without the connections on which the broker speaks to itself, by the address it was told to advertise: markers,
    and whether partitions take part in a transaction; and without those on which a sweep waits."""
    own = {
        event.connection
        for event in events
        if event.direction is Direction.REQUEST and _client_id(event.frame).startswith(LEFT_OUT)
    }
    return [event for event in events if event.connection not in own]


def _client_id(frame: bytes) -> bytes:
    size = int.from_bytes(frame[8:10], "big", signed=True)
    return frame[10 : 10 + max(0, size)]


def record(name: str, scenario: Scenario) -> list[Event]:
    """Run one scenario against a fresh Apache Kafka and return what was said."""
    (port,) = free_ports(1)
    with ApacheKafka(properties=properties_of(name), advertised=("127.0.0.1", port)) as kafka:
        warm_up((kafka.host, kafka.port), name)
        with Recorder((kafka.host, kafka.port), port, settle_s=0.15) as recorder:
            scenario(recorder.bootstrap_servers)
            time.sleep(0.1)
            return of_clients(recorder.take())


def main() -> int:
    """Record what is asked for; 1 when a scenario failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", nargs="*", choices=[[], *CLIENTS], help="all when none is named")
    parser.add_argument("--scenario", action="append", help="only scenarios of this name")
    options = parser.parse_args()
    failed = 0
    for client in options.client or CLIENTS:
        for name, scenario in scenarios(client).items():
            if options.scenario and name not in options.scenario:
                continue
            try:
                events = record(name, scenario)
            except PeerMissing as missing:
                print(f"{client}: left out: {missing}", file=sys.stderr)
                break
            except Exception as error:  # noqa: BLE001 – one scenario's failure is reported and the rest go on
                print(f"{client} {name}: {error}", file=sys.stderr)
                failed += 1
                continue
            size = save(DATA / f"{client}.{name}.xz", events)
            print(f"{client} {name}: {len(events)} events, {size} bytes", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Record what Apache Kafka answers to the conversations: `python -m tests.conformance.logins.record`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.conformance.logins.conversations import (
    CONVERSATIONS,
    ENDING,
    MECHANISMS,
    PLAIN_LINE,
    PLAINTEXT,
    SASL,
    SCRAM_LINE,
    SESSION_MS,
)
from tests.conformance.logins.speaking import add_carol, hold
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.process import free_ports

GOLDEN: Final = Path(__file__).with_name("golden.json")


def properties(listeners: dict[str, tuple[str, int]], controller_port: int) -> dict[str, str]:
    """The properties of a broker with the listeners of the conversations."""
    endpoints = ",".join(f"{name}://{host}:{port}" for name, (host, port) in listeners.items())
    protocols = {PLAINTEXT: "PLAINTEXT", SASL: "SASL_PLAINTEXT", ENDING: "SASL_PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
    values = {
        "listeners": f"{endpoints},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": endpoints,
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "sasl.enabled.mechanisms": MECHANISMS,
    }
    for name in (SASL, ENDING):
        prefix = f"listener.name.{name.lower()}"
        values[f"{prefix}.plain.sasl.jaas.config"] = PLAIN_LINE
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            values[f"{prefix}.{mechanism}.sasl.jaas.config"] = SCRAM_LINE
    for mechanism in ("plain", "scram-sha-256"):
        values[f"listener.name.{ENDING.lower()}.{mechanism}.connections.max.reauth.ms"] = str(SESSION_MS)
    return values


def main() -> int:
    """Start a broker, hold all conversations, write the answers."""
    plaintext, sasl, ending, controller = free_ports(4)
    addresses = {name: ("127.0.0.1", port) for name, port in ((PLAINTEXT, plaintext), (SASL, sasl), (ENDING, ending))}
    values = properties(addresses, controller)
    values["controller.quorum.voters"] = f"1@127.0.0.1:{controller}"
    with tempfile.TemporaryDirectory() as directory, ApacheKafka(Path(directory), properties=values, port=plaintext):
        add_carol(addresses[PLAINTEXT])
        answers = {conversation.name: hold(conversation, addresses) for conversation in CONVERSATIONS}
    GOLDEN.write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(answers)} conversations in {GOLDEN}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

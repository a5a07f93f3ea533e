"""Record the corpus against Apache Kafka: `python -m tests.conformance.authorization.record [QUESTION]`.

With the beginning of a question's name nothing is written: the answers are printed. Every principal is a user of SASL
PLAIN with its name as the password.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.conformance.authorization.corpus import PROPERTIES, save
from tests.conformance.authorization.script import Answer, answers
from tests.conformance.authorization.world import ADMIN, HOST, PRINCIPALS
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.clients.sweep.wire import Wire
from tests.peers.process import free_ports

_LISTENER: Final = "SASL_PLAINTEXT"
_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Users:
    """A connection for each principal, logged in, made again when the broker has closed it."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._wires: dict[str, Wire] = {}

    def ask(self, principal: str, message: Any, version: int) -> Any:
        """The answer to a principal; None when the broker closed the connection."""
        wire = self._wires.get(principal)
        if wire is None:
            wire = self._wires[principal] = Wire(self._bootstrap)
            shaken = wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            login = f"\0{principal}\0{principal}".encode()
            response = wire.call(SaslAuthenticateRequest(auth_bytes=login), 2)
            if shaken.error_code or response.error_code:
                raise RuntimeError(f"{principal} cannot log in: {response.error_message}")
        answer = wire.call(message, version)
        if answer is None:
            del self._wires[principal]
        return answer


def secured() -> tuple[ApacheKafka, str]:
    """A broker with users and access control lists, and where users log in. It speaks to itself without a login."""
    port, controller, users_port = free_ports(3)
    users = " ".join(f'user_{name}="{name}"' for name in (ADMIN, *PRINCIPALS))
    ours, theirs = f"PLAINTEXT://{HOST}:{port}", f"{_LISTENER}://{HOST}:{users_port}"
    kafka = ApacheKafka(
        port=port,
        properties={
            **PROPERTIES,
            "unstable.api.versions.enable": "true",
            "listeners": f"{ours},{theirs},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"{ours},{theirs}",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,{_LISTENER}:{_LISTENER}",
            "sasl.enabled.mechanisms": "PLAIN",
            f"listener.name.{_LISTENER.lower()}.plain.sasl.jaas.config": f"{_LOGIN} {users};",
        },
    )
    return kafka, f"{HOST}:{users_port}"


def main(only: str = "") -> None:
    """Record, or print the answers to some questions."""
    kafka, bootstrap = secured()
    with kafka:
        results: list[Answer] = []
        for answer in answers(Users(bootstrap).ask, only):
            results.append(answer)
            if only:
                print(answer.label, answer.response)
        if not only:
            save(results)
            print(f"{len(results)} answers")


if __name__ == "__main__":
    main(*sys.argv[1:])

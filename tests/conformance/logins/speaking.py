"""Holds conversations with a broker at a socket, and notes what it answers."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from typing import Any

from oncelog.core.sasl.scram_credentials import CODES
from oncelog.wire.header import RequestHeader, decode_response_header, encode_request
from oncelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.conformance.logins.conversations import CLOSED, Answering, Ask, Bare, Conversation, Step, described
from tests.waiting import HANG_S


class Speaker:
    """One connection, a step at a time."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=HANG_S)
        self._last = b""
        self._with_headers = True

    def say(self, step: Step) -> Any:
        """The answer to a step, ``CLOSED`` where there is none."""
        if isinstance(step, Answering):
            token = step.token(self._last)
            step = Ask(SaslAuthenticateRequest(auth_bytes=token), 2) if self._with_headers else Bare(token)
        try:
            if isinstance(step, Bare):
                self._socket.sendall(len(step.data).to_bytes(4, "big") + step.data)
                frame = self._frame()
                return CLOSED if frame is None else described(frame)
            return self._ask(step)
        except ConnectionError:
            return CLOSED

    def _ask(self, ask: Ask) -> Any:
        header = RequestHeader(ask.request.API_KEY, ask.version, 7, "speaker")
        self._socket.sendall(b"".join(map(bytes, encode_request(header, ask.request))))
        frame = self._frame()
        if frame is None:
            return CLOSED
        _, position = decode_response_header(frame, ask.request.API_KEY, ask.version)
        response = ask.request.response_class().decode(memoryview(frame)[position:], ask.version)
        self._last = bytes(getattr(response, "auth_bytes", b""))
        return described(response)

    def _frame(self) -> bytes | None:
        size = self._exactly(4)
        return None if size is None else self._exactly(int.from_bytes(size, "big"))

    def _exactly(self, count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            if not more:
                return None
            data += more
        return data

    def is_closed(self) -> bool:
        """True if the broker closes without being asked anything more."""
        with contextlib.suppress(ConnectionError):
            self._socket.settimeout(0.5)
            try:
                return self._socket.recv(1) == b""
            except TimeoutError:
                return False
        return True

    def close(self) -> None:
        self._socket.close()


def hold(conversation: Conversation, addresses: Mapping[str, tuple[str, int]]) -> list[Any]:
    """The answers to all steps of a conversation, and whether it ends with a close."""
    speaker = Speaker(addresses[conversation.listener])
    try:
        answers: list[Any] = []
        for step in conversation.steps:
            answers.append(speaker.say(step))
            if answers[-1] == CLOSED:
                return answers
        return [*answers, CLOSED] if speaker.is_closed() else answers
    finally:
        speaker.close()


def add_carol(address: tuple[str, int]) -> None:
    """Make the user by SCRAM that the conversations speak of."""
    import hashlib

    salted = hashlib.pbkdf2_hmac("sha256", b"carol-secret", b"salt", 4096)
    upsertion = ScramCredentialUpsertion(
        name="carol", mechanism=next(iter(CODES)), iterations=4096, salt=b"salt", salted_password=salted
    )
    speaker = Speaker(address)
    answer = speaker.say(Ask(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0))
    assert [result["error_code"] for result in answer["results"]] == [0], answer
    speaker.close()

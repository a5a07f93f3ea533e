"""A registry's server with answers that a test gives: by method and target, or as raw bytes of a connection."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answers = Callable[[str, str, Any], tuple[int, Any]]
"""Takes method, target and the body's JSON; returns a status and JSON, or bytes as they are."""


class FakeRegistry:
    """Its requests so far, and its URL."""

    def __init__(self, answers: Answers) -> None:
        self.requests: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.answer_headers: dict[str, str] = {}
        self.connections = 0
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body leave together

            def setup(self) -> None:
                fake.connections += 1
                super().setup()

            def respond(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(size)) if size else None
                fake.requests.append((self.command, self.path))
                fake.headers.append(dict(self.headers))
                status, document = answers(self.command, self.path, body)
                data = document if isinstance(document, bytes) else json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                for name, value in fake.answer_headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = respond  # noqa: N815 - the library's names

            def log_message(self, *_: object) -> None:
                pass

        self.server = _QuietServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"


class _QuietServer(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that refuse its certificate are no news."""


@contextmanager
def fake_registry(answers: Answers, tls: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
    fake = FakeRegistry(answers)
    if tls is not None:
        fake.server.socket = tls.wrap_socket(fake.server.socket, server_side=True, do_handshake_on_connect=False)
        fake.url = fake.url.replace("http:", "https:")
    thread = threading.Thread(target=lambda: fake.server.serve_forever(poll_interval=0.01))
    thread.start()
    try:
        yield fake
    finally:
        fake.server.shutdown()
        thread.join()
        fake.server.server_close()


@contextmanager
def raw_server(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """The URL of a server that reads a request's head and then calls ``talk``, once for each connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            with connection:
                head = b""
                while b"\r\n\r\n" not in head:
                    piece = connection.recv(65536)
                    if not piece:
                        break
                    head += piece
                with suppress(OSError):
                    talk(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def absent(message: str = "Schema 5 not found", code: int = 40403) -> tuple[int, Any]:
    return 404, {"error_code": code, "message": message}

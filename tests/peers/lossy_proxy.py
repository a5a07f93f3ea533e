"""A proxy that loses requests or answers when it is told to, before a server on the loopback.

The rule: an answer is lost after the server has given it, so what was asked for is done; a request that is lost was
never seen. Requests with ``If-None-Match`` are let through one at a time, for servers that look and write in two steps.
"""

from __future__ import annotations

import http.client
import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

CONTROL: Final = "/-oncelog-"
"""A path of the proxy's own: faults are posted to it, and it answers what happened."""
_HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive"})


class Proxy(ThreadingHTTPServer):
    """Passes requests on, but for those that meet a fault."""

    daemon_threads = True

    def __init__(self, behind: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behind = behind
        self.lock = threading.Lock()
        self.faults: list[dict[str, Any]] = []
        self.lost = 0
        self.conditional: list[tuple[str, int]] = []

    def fault_of(self, method: str, path: str) -> str | None:
        """The part of a request's exchange that is to be lost, None for most."""
        with self.lock:
            for fault in self.faults:
                if fault["times"] and method == fault["method"] and re.search(fault["path"], path):
                    fault["times"] -= 1
                    self.lost += 1
                    return str(fault["what"])
        return None

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""


class Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    server: Proxy

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name that it has there
        """Say nothing."""

    def _pass_on(self) -> None:
        body = self._body()
        if self.path == CONTROL:
            return self._answer_control(body)
        lost = self.server.fault_of(self.command, self.path)
        if lost == "request":
            self.close_connection = True
            return None
        status, headers, answer = self._ask(body)
        if lost == "answer":
            self.close_connection = True
            return None
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        length = {name.lower(): value for name, value in headers}.get("content-length", "0")
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
        return None

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on  # noqa: N815  # the names that it looks for

    def _answer_control(self, body: bytes) -> None:
        with self.server.lock:
            if body:
                self.server.faults.append(json.loads(body))
            encoded = json.dumps({"lost": self.server.lost, "conditional": self.server.conditional}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        kept = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        kept["Content-Length"] = str(len(body))
        if self.headers.get("If-None-Match") is None:
            with _ask(self.server.behind, self.command, self.path, body, kept) as answer:
                return answer.status, answer.getheaders(), answer.read()
        with self.server.lock, _ask(self.server.behind, self.command, self.path, body, kept) as answer:
            self.server.conditional.append((self.path, answer.status))
            return answer.status, answer.getheaders(), answer.read()


def _ask(port: int, method: str, path: str, body: bytes, headers: dict[str, str]) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request(method, path, body, headers)
    return connection.getresponse()


def serve_forever(behind: int) -> None:
    """Print the proxy's address, and serve until standard input ends."""
    proxy = Proxy(behind)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{proxy.server_address[1]}", flush=True)
    sys.stdin.read()

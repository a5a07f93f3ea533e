"""Key sets are read from where they are configured, and read again."""

from __future__ import annotations

import asyncio
import http.server
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trustme

from oncelog.core.sasl.exchange import InvalidToken
from oncelog.core.sasl.settings import KeySetSettings
from oncelog.runtime.security.oauth_keys import MAX_BYTES, OAuthKeys, fetch
from tests.unit.runtime.security.signing import document, ec_key, jwk, signed
from tests.waiting import HANG_S

pytestmark = pytest.mark.slow  # threads, certificates


class Endpoint(http.server.BaseHTTPRequestHandler):
    """Answers as its server's ``answer`` says."""

    server: Any

    def do_GET(self) -> None:
        status, headers, body = self.server.answer(self.path)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def https(monkeypatch, tmp_path) -> Iterator[tuple[str, http.server.HTTPServer]]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    server = http.server.HTTPServer(("127.0.0.1", 0), Endpoint)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"https://localhost:{server.server_address[1]}", server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_key_set_is_fetched_over_tls(https):
    url, server = https
    server.answer = lambda path: (200, {}, path.encode())
    assert fetch(f"{url}/keys?version=2") == b"/keys?version=2"


def test_cve_2025_27817_a_redirect_is_not_followed(https):
    url, server = https
    requests = []
    server.answer = lambda path: requests.append(path) or (302, {"Location": f"{url}/elsewhere"}, b"")
    with pytest.raises(OSError, match="status 302"):
        fetch(f"{url}/keys")
    assert requests == ["/keys"]


def test_a_server_of_another_authority_is_not_believed(https, monkeypatch):
    url, server = https
    server.handle_error = lambda *_arguments: None
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(ssl.SSLCertVerificationError):
        fetch(f"{url}/keys")


def test_a_document_without_end_is_cut_off(https):
    url, server = https
    server.answer = lambda path: (200, {}, b" " * (2 * MAX_BYTES))
    server.handle_error = lambda *_arguments: None
    assert len(fetch(f"{url}/keys")) == MAX_BYTES + 1


@pytest.mark.parametrize("url", ["http://localhost/keys", "ftp://localhost/keys", "file:///does/not/exist"])
def test_other_places_are_not_read(url):
    with pytest.raises(OSError, match=r"not supported|No such file"):
        fetch(url)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_S):
        while not condition():
            await asyncio.sleep(0)


def is_known(keys: OAuthKeys) -> bool:
    try:
        keys.key_sets["SASL"].verify("ES256", "k", *signed(ec_key(), "ES256"))
    except InvalidToken:
        return False
    return True


def test_a_set_that_could_not_be_read_is_tried_again_and_refreshed(tmp_path, caplog):
    path = tmp_path / "keys.json"

    async def run() -> None:
        keys = OAuthKeys(asyncio.get_running_loop(), {"SASL": KeySetSettings(path.as_uri(), 1, 1, 1)})
        try:
            assert "No such file" in (await keys.start() or "")
            assert not is_known(keys)
            path.write_bytes(document(jwk(ec_key(), "k")))
            await until(lambda: is_known(keys))
            path.write_bytes(b"damaged")
            await until(lambda: "not a JSON web key set" in caplog.text)
            assert is_known(keys)
            path.write_bytes(document(jwk(ec_key(), "another")))
            await until(lambda: not is_known(keys))
        finally:
            keys.stop()

    asyncio.run(run())


def test_a_key_that_is_unknown_has_the_set_read_again_but_not_often(tmp_path):
    path = tmp_path / "keys.json"
    path.write_bytes(document(jwk(ec_key(), "older")))

    async def run() -> None:
        hour_ms = 3_600_000
        keys = OAuthKeys(asyncio.get_running_loop(), {"SASL": KeySetSettings(path.as_uri(), hour_ms, hour_ms, hour_ms)})
        try:
            assert await keys.start() is None
            path.write_bytes(document(jwk(ec_key(), "k")))
            assert not is_known(keys)
            await until(lambda: is_known(keys))
            path.write_bytes(document(jwk(ec_key(), "older")))
            assert is_known(keys)
        finally:
            keys.stop()

    asyncio.run(run())

"""The process of ``tests.peers.s3``: moto's server, and the proxy before it."""

from __future__ import annotations

import logging

from moto.server import ThreadedMotoServer

from tests.peers.lossy_proxy import serve_forever

if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    moto.start()
    serve_forever(moto.get_host_and_port()[1])

#!/usr/bin/python3 -IS
"""healthcheck [URL]: exits with 0 if the broker at URL answers /health, and with 1 and a line on stderr if not."""

import sys
from http.client import HTTPException
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

URL = "http://127.0.0.1:9464/health"
TIMEOUT_S = 4


def main(url: str) -> int:
    """Ask once, without a proxy. An answer with an error status is a URLError, too."""
    try:
        with build_opener(ProxyHandler({})).open(url, timeout=TIMEOUT_S):
            return 0
    except (OSError, URLError, HTTPException, ValueError) as error:
        print(f"{url} is not healthy: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:] or [URL]))

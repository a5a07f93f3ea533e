"""Parses broker addresses: ``host:port``."""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog.client.errors import ConfigError

DEFAULT_PORT: Final = 9092


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(text: str) -> list[Address]:
    """``host[:port]`` separated by commas; IPv6 as ``[::1]:9092``. Raises ConfigError naming the wrong part."""
    addresses = [_parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ConfigError("no bootstrap server given; use host:port, for example localhost:9092")
    return addresses


def _parse_address(text: str) -> Address:
    wrong = ConfigError(f"{text!r} is not a broker address; use host:port, for example localhost:9092")
    if "://" in text:
        protocol, _, text = text.partition("://")
        if protocol.upper() != "PLAINTEXT":
            raise ConfigError(f"{protocol}:// in an address is not supported; set security.protocol instead")
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise wrong
        port = port[1:]
    else:
        host, _, port = text.partition(":")
    if not host or any(character.isspace() or character in "/:" for character in host.replace(":", "") + port):
        raise wrong
    if not port:
        return Address(host, DEFAULT_PORT)
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise wrong
    return Address(host, int(port))

"""Base classes of generated messages: one class for all versions, the version an argument.

The rule: a field that a version lacks keeps its default when decoded and is dropped when encoded. Decoding yields a
message or raises :class:`PeerError`; encoding raises ValueError or struct.error, for the mistake is ours.

A response must fill its buffer. Bytes after a request are ignored, as by Apache Kafka: librdkafka's request for the
metadata of all topics, version 13, has three of them.
"""

from __future__ import annotations

from typing import ClassVar, Final, Generic, Self, TypeVar

from oncelog.base.errors import PeerError
from oncelog.wire.chunks import Buffer, Chunk
from oncelog.wire.reader import CompactReader, Reader
from oncelog.wire.writer import CompactWriter, Writer

NO_UUID: Final = bytes(16)
NEVER_FLEXIBLE: Final = 1 << 15
"""A first flexible version that no version reaches."""

ELEMENT_BYTES: Final = 32
REQUEST_MAX_ELEMENTS: Final = 1 << 15
"""Array elements and tagged fields of one request: at 32 bytes each, as names and partitions have them, the 1 MiB that
a request other than Produce may have is full; where it may have more (``oncelog.request.max.bytes``) so may be its
elements. One costs a decoder up to 3 µs and half a kilobyte."""
PRODUCE_MAX_ELEMENTS: Final = 1 << 14
"""The same of a Produce request, which may be a hundred times as large, but of records."""
RESPONSE_MAX_ELEMENTS: Final = 1 << 24
"""Array elements and tagged fields of one response: the metadata of a large cluster has millions."""


class Message:
    """A request or a response."""

    __slots__ = ()
    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    BASELINE_VERSION: ClassVar[int] = 0
    """The first version that Apache Kafka 4 has (KIP-896), and our client speaks. Those before it, of old clients and
    brokers, carry records in other formats."""
    FIRST_FLEXIBLE_VERSION: ClassVar[int]
    """The first version with compact lengths and tagged fields (KIP-482); ``NEVER_FLEXIBLE`` where no version has
    them."""
    MAX_ELEMENTS: ClassVar[int]
    MAY_BE_FOLLOWED: ClassVar[bool]
    """True if bytes after the message are ignored, False if they are refused."""

    @classmethod
    def decode(cls, buffer: Buffer, version: int, max_elements: int = 0) -> Self:
        """The message in ``buffer``. ``records`` fields are views into it. ``max_elements`` in place of the class's
        where that is less. Raises PeerError."""
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise PeerError(f"{cls.__name__} has no version {version}")
        bound = max(max_elements, cls.MAX_ELEMENTS)
        reader = (CompactReader if version >= cls.FIRST_FLEXIBLE_VERSION else Reader)(buffer, bound)
        message = cls.read(reader, version)
        if not cls.MAY_BE_FOLLOWED:
            reader.finish()
        return message

    def encode(self, version: int) -> list[Chunk]:
        """The body, without size and header. ``records`` are put in their place, neither copied nor read."""
        writer = self.writer(version)
        self.write(writer, version)
        return writer.chunks()

    @classmethod
    def writer(cls, version: int, buffer: bytearray | None = None) -> Writer:
        """A writer of the version's encodings that goes on after what ``buffer`` holds. Raises ValueError."""
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise ValueError(f"{cls.__name__} has no version {version}")
        return CompactWriter(buffer) if version >= cls.FIRST_FLEXIBLE_VERSION else Writer(buffer)

    @classmethod
    def read(cls, reader: Reader, version: int) -> Self:
        """Read the fields that ``version`` has."""
        raise NotImplementedError

    def write(self, writer: Writer, version: int) -> None:
        """Write the fields that ``version`` has."""
        raise NotImplementedError


class Response(Message):
    """A response."""

    __slots__ = ()
    MAX_ELEMENTS: ClassVar[int] = RESPONSE_MAX_ELEMENTS
    MAY_BE_FOLLOWED: ClassVar[bool] = False


R = TypeVar("R", bound=Response)


class Request(Message, Generic[R]):
    """A request that is answered by an ``R``."""

    __slots__ = ()
    MAX_ELEMENTS: ClassVar[int] = REQUEST_MAX_ELEMENTS
    MAY_BE_FOLLOWED: ClassVar[bool] = True

    @classmethod
    def response_class(cls) -> type[R]:
        """The class of the answer."""
        raise NotImplementedError

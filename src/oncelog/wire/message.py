"""Base classes of generated messages: one class for all versions, with the version as an argument.

A field that a version lacks keeps its default when decoded and is dropped when encoded. Decoding yields a message or
raises :class:`PeerError`; encoding raises ValueError or struct.error.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Generic, Self, TypeVar

from oncelog.base.errors import PeerError
from oncelog.wire.chunks import Buffer, Chunk
from oncelog.wire.reader import CompactReader, Reader
from oncelog.wire.writer import CompactWriter, Writer

NO_UUID: Final = bytes(16)
EMPTY: Final[list[Any]] = []  # The default of a list: the constructor puts a new one in its place.
NEVER_FLEXIBLE: Final = 1 << 15
"""A first flexible version above every version."""

ELEMENT_BYTES: Final = 32
# At 32 bytes each, as in names and partitions, they fill the 1 MiB of a request other than Produce; a larger
# ``oncelog.request.max.bytes`` allows more. One costs a decoder up to 3 µs and half a kilobyte.
REQUEST_MAX_ELEMENTS: Final = 1 << 15
"""Array elements and tagged fields of one request."""
PRODUCE_MAX_ELEMENTS: Final = 1 << 14
"""The same for a Produce request, which may be a hundred times as large, but consists of records."""
RESPONSE_MAX_ELEMENTS: Final = 1 << 24
"""Array elements and tagged fields of one response: the metadata of a large cluster has millions."""


class WireStruct:
    # ``__slots__`` are the fields; structs of one class with equal fields are equal.
    __slots__: ClassVar[tuple[str, ...]] = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # its fields change

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__qualname__}({fields})"

    def replaced(self, **values: Any) -> Self:
        return type(self)(**{name: getattr(self, name) for name in self.__slots__} | values)

    @classmethod
    def read(cls, reader: Reader, version: int) -> Self:
        raise NotImplementedError

    def write(self, writer: Writer, version: int) -> None:
        raise NotImplementedError


class Message(WireStruct):
    __slots__ = ()
    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    BASELINE_VERSION: ClassVar[int] = 0
    """The first version of Apache Kafka 4 (KIP-896) and of our client. Earlier ones, of old clients and brokers, carry
    records in other formats."""
    FIRST_FLEXIBLE_VERSION: ClassVar[int]
    """The first version with compact lengths and tagged fields (KIP-482), or ``NEVER_FLEXIBLE``."""
    MAX_ELEMENTS: ClassVar[int]
    MAY_BE_FOLLOWED: ClassVar[bool]
    """True if bytes after the message are ignored, False if they are refused."""

    @classmethod
    def decode(cls, buffer: Buffer, version: int, max_elements: int = 0) -> Self:
        """The message in ``buffer``, with ``records`` fields as views of it. ``max_elements`` raises the class's bound.
        Raises PeerError."""
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise PeerError(f"{cls.__name__} has no version {version}")
        # The configured bound can only raise the default.
        bound = max(max_elements, cls.MAX_ELEMENTS)
        reader = (CompactReader if version >= cls.FIRST_FLEXIBLE_VERSION else Reader)(buffer, bound)
        message = cls.read(reader, version)
        if not cls.MAY_BE_FOLLOWED:
            reader.finish()
        return message

    def encode(self, version: int) -> list[Chunk]:
        """The body, without size and header. ``records`` are neither copied nor read."""
        writer = self.writer(version)
        self.write(writer, version)
        return writer.chunks()

    @classmethod
    def writer(cls, version: int, buffer: bytearray | None = None) -> Writer:
        """A writer for the version that appends to ``buffer``. Raises ValueError."""
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise ValueError(f"{cls.__name__} has no version {version}")
        return CompactWriter(buffer) if version >= cls.FIRST_FLEXIBLE_VERSION else Writer(buffer)


class Response(Message):
    __slots__ = ()
    MAX_ELEMENTS: ClassVar[int] = RESPONSE_MAX_ELEMENTS
    MAY_BE_FOLLOWED: ClassVar[bool] = False


R = TypeVar("R", bound=Response)


class Request(Message, Generic[R]):
    """``R`` is the class of the responses."""

    __slots__ = ()
    MAX_ELEMENTS: ClassVar[int] = REQUEST_MAX_ELEMENTS
    # As in Apache Kafka: librdkafka's Metadata request for all topics, version 13, has three bytes too many.
    MAY_BE_FOLLOWED: ClassVar[bool] = True

    @classmethod
    def response_class(cls) -> type[R]:
        raise NotImplementedError

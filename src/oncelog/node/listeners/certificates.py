"""Reads from X.509 certificates the two facts a broker needs: the subject's name and the validity period.

The name is formatted as by Java's ``X500Principal.getName()`` (RFC 2253 with Java's escapes), because principals are
compared as text with Apache Kafka's ACLs: relative names last to first, nine attribute types by keyword, all others as
number and hexadecimal value. Text in a principal must be well-formed UTF-8, or ASCII, as its type says. OpenSSL has
verified a certificate before it is read here; unreadable ones still raise ValueError.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_SEQUENCE, _OBJECT_ID, _UTC_TIME, _VERSION = 0x30, 0x06, 0x17, 0xA0
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
# UTF8String, PrintableString and IA5String, by their tags.
_ENCODINGS: Final = {0x0C: "utf-8", 0x13: "ascii", 0x16: "ascii"}
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_BLANKS: Final = " \r"

# Tag, content, and the whole encoding.
_Element = tuple[int, memoryview, memoryview]


@dataclass(frozen=True, slots=True)
class Certificate:
    """The facts of a certificate. Times are seconds since 1970."""

    subject_der: bytes
    """The subject's relative names, DER-encoded."""
    not_before_s: int
    not_after_s: int

    @property
    def subject(self) -> str:
        """The subject's name. Raises ValueError if it is ambiguous or unreadable."""
        try:
            return _name(memoryview(self.subject_der))
        except IndexError as error:
            raise ValueError(f"not a certificate: {error!r}") from None


def read_certificate(der: bytes) -> Certificate:
    """Parse a DER-encoded certificate. Raises ValueError."""
    try:
        ((_, outer, _),) = _elements(memoryview(der))
        signed = next(_elements(outer))[1]
        parts = [part for part in _elements(signed) if part[0] != _VERSION]
        _serial, _algorithm, _issuer, validity, subject, *_ = parts
        begins, ends = _elements(validity[1])
        return Certificate(bytes(subject[1]), _time_s(*begins[:2]), _time_s(*ends[:2]))
    except (IndexError, StopIteration) as error:
        raise ValueError(f"not a certificate: {error!r}") from None


def _elements(data: memoryview) -> Iterator[_Element]:
    position = 0
    while position < len(data):
        tag, length, start = data[position], data[position + 1], position + 2
        if length & 0x80:
            size = length & 0x7F
            if not 1 <= size <= 4:
                raise ValueError("not a certificate: invalid DER length")
            length = int.from_bytes(data[start : start + size])
            start += size
        end = start + length
        if end > len(data):
            raise ValueError("not a certificate: it is truncated")
        yield tag, data[start:end], data[position:end]
        position = end


def _time_s(tag: int, content: memoryview) -> int:
    text = bytes(content).decode("ascii")
    if tag == _UTC_TIME:
        text = ("20" if int(text[:2]) < 50 else "19") + text
    return int(datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp())


def _name(content: memoryview) -> str:
    relative_names = ["+".join(map(_attribute, _elements(relative_name[1]))) for relative_name in _elements(content)]
    return ",".join(reversed(relative_names))


def _attribute(element: _Element) -> str:
    kind, (tag, value, encoded) = _elements(element[1])
    number = _object_id(kind[1])
    keyword = _KEYWORDS.get(number)
    if keyword is None:
        return f"{number}=#{bytes(encoded).hex()}"
    # Java decodes every string type as UTF-8. A CA may see other characters in a type with another encoding: the two
    # characters U+6164 U+6D69 of a BMPString are the bytes of "admi".
    encoding = _ENCODINGS.get(tag)
    if encoding is None:
        raise ValueError(
            f"{keyword} in the certificate's subject has ASN.1 type {tag:#04x}; "
            "UTF8String, PrintableString and IA5String are allowed"
        )
    try:
        text = bytes(value).decode(encoding)
    except UnicodeDecodeError:
        raise ValueError(
            f"{keyword} in the certificate's subject is not {encoding.upper()}, as its type requires"
        ) from None
    if "\0" in text:
        raise ValueError(f"{keyword} in the certificate's subject contains a NUL character")
    return f"{keyword}={_escaped(text)}"


def _object_id(content: memoryview) -> str:
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    whole = "".join("\\" + character if character in _ESCAPED else character for character in text)
    inner = whole.strip(_BLANKS)
    if inner == whole:
        return whole
    lead = len(whole) - len(whole.lstrip(_BLANKS))
    if lead == len(whole):
        return "".join("\\" + character for character in whole)
    return (
        "".join(f"\\{blank}" for blank in whole[:lead])
        + inner
        + "".join(f"\\{blank}" for blank in whole[lead + len(inner) :])
    )

"""Forms as browsers send them: fields by name, read with bounds. A file that is uploaded is a field with its text."""

from __future__ import annotations

from collections.abc import Mapping
from email.message import Message
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

LARGEST_FORM: Final = 256 * 1024
LARGEST_UPLOAD: Final = 8 * 1024 * 1024 + 64 * 1024
MOST_FIELDS: Final = 2000
MOST_PARTS: Final = 16
LONGEST_HEAD: Final = 4096
Form = Mapping[str, tuple[str, ...]]


async def read_form(request: Request, *, may_upload: bool = False) -> Form | None:
    """The fields of a form; None for what is none, or too large."""
    kind = Message()
    kind["content-type"] = request.headers.get("content-type", "")
    if kind.get_content_type() == "application/x-www-form-urlencoded":
        largest = LARGEST_FORM
    elif kind.get_content_type() == "multipart/form-data" and may_upload:
        largest = LARGEST_UPLOAD
    else:
        return None
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > largest:
                return None
        pairs = (
            parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
            if largest == LARGEST_FORM
            else _parts(bytes(body), kind.get_boundary(""))
        )
    except (ValueError, ClientDisconnect):
        return None
    found: dict[str, tuple[str, ...]] = {}
    for name, value in pairs:
        found[name] = (*found.get(name, ()), value)
    return found


def _parts(body: bytes, boundary: str) -> list[tuple[str, str]]:
    """Names and texts of the parts of a multipart form (RFC 7578). Raises ValueError."""
    if not boundary:
        raise ValueError("no boundary")
    first, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode(), MOST_PARTS + 1)
    if first or not parts or not parts.pop().startswith(b"--"):
        raise ValueError("no form, one that was cut, or one of too many parts")
    return [_part(part) for part in parts]


def _part(part: bytes) -> tuple[str, str]:
    lines, blank, content = part.partition(b"\r\n\r\n")
    if not blank or len(lines) > LONGEST_HEAD:
        raise ValueError("a part without a beginning, or with one that is too long")
    said = Message()
    for line in lines.decode().split("\r\n")[:8]:
        name, _, value = line.partition(":")
        if name.lower() == "content-disposition":
            said["content-disposition"] = value.strip()
    field = said.get_param("name", header="content-disposition")
    if not isinstance(field, str):
        raise ValueError("a part without a name")
    return field, content.decode()

"""Form bodies as browsers send them, read with bounds. An uploaded file is a field with the file's text."""

from __future__ import annotations

from collections.abc import Mapping
from email.message import Message
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

MAX_FORM_BYTES: Final = 256 * 1024
MAX_UPLOAD_BYTES: Final = 8 * 1024 * 1024 + 64 * 1024
MAX_FIELDS: Final = 2000
MAX_PARTS: Final = 16
MAX_HEAD_BYTES: Final = 4096
Form = Mapping[str, tuple[str, ...]]


async def read_form(request: Request, *, may_upload: bool = False) -> Form | None:
    """The fields of a form by name; None for a body that is not a form or is too large."""
    content_type = Message()
    content_type["content-type"] = request.headers.get("content-type", "")
    if content_type.get_content_type() == "application/x-www-form-urlencoded":
        largest = MAX_FORM_BYTES
    elif content_type.get_content_type() == "multipart/form-data" and may_upload:
        largest = MAX_UPLOAD_BYTES
    else:
        return None
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > largest:
                return None
        pairs = (
            parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
            if largest == MAX_FORM_BYTES
            else _parts(bytes(body), content_type.get_boundary(""))
        )
    except (ValueError, ClientDisconnect):
        return None
    fields: dict[str, tuple[str, ...]] = {}
    for name, value in pairs:
        fields[name] = (*fields.get(name, ()), value)
    return fields


def _parts(body: bytes, boundary: str) -> list[tuple[str, str]]:
    """Names and texts of the parts of a multipart form (RFC 7578). Raises ValueError."""
    if not boundary:
        raise ValueError("multipart/form-data without a boundary")
    first, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode(), MAX_PARTS + 1)
    if first or not parts or not parts.pop().startswith(b"--"):
        raise ValueError("the body is not a multipart form, is truncated, or has too many parts")
    return [_part(part) for part in parts]


def _part(part: bytes) -> tuple[str, str]:
    lines, blank, content = part.partition(b"\r\n\r\n")
    if not blank or len(lines) > MAX_HEAD_BYTES:
        raise ValueError("a part has no head, or one that is too long")
    disposition = Message()
    for line in lines.decode().split("\r\n")[:8]:
        name, _, value = line.partition(":")
        if name.lower() == "content-disposition":
            disposition["content-disposition"] = value.strip()
    field = disposition.get_param("name", header="content-disposition")
    if not isinstance(field, str):
        raise ValueError("a part has no name")
    return field, content.decode()

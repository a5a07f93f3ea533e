"""Values of a JSON schema: JSON, which is validated before it is written."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from oncelog.schemas.formats.json_schema.schema import JsonSchema
from oncelog.schemas.values.errors import NotReadable, NotWritable

_MOST_SHOWN: Final = 300


class JsonCodec:
    """Reads JSON as it is; writes what the schema allows."""

    def __init__(self, schema: JsonSchema) -> None:
        """Raises SchemaError."""
        self._validator = schema.validator

    def read(self, payload: bytes) -> Any:
        """Raises NotReadable."""
        try:
            return json.loads(payload.decode(), parse_constant=_reject)
        except (ValueError, RecursionError) as error:
            raise NotReadable(f"it is not JSON: {error}"[:_MOST_SHOWN]) from None

    def write(self, value: Any) -> bytes:
        """Raises NotWritable."""
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
            error = next(self._validator.iter_errors(value), None)
        except (ValueError, TypeError, RecursionError) as unusual:
            raise NotWritable(f"it is not JSON: {unusual}"[:_MOST_SHOWN]) from None
        if error is not None:
            place = "".join(f"/{part}" for part in error.instance_path) or "the value"
            raise NotWritable(f"{place}: {error.message}"[:_MOST_SHOWN])
        return text.encode()


def _reject(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")

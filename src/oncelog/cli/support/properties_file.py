"""Files of settings in Java's properties format, as options name them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from oncelog.base.notation.java_properties import PropertiesError as PropertiesError
from oncelog.base.notation.java_properties import decode_properties, parse_properties

_TRIMMED: Final = "".join(map(chr, range(0x21)))
"""The characters that ``String.trim`` removes: Kafka trims each setting that it parses."""


def read_properties_file(path: Path) -> dict[str, str]:
    """Keys and trimmed values of a file. Raises PropertiesError, whose message names the file and holds no value."""
    try:
        values = parse_properties(decode_properties(path.read_bytes()))
    except OSError as error:
        raise PropertiesError(f"cannot read {path}: {error.strerror or error}") from None
    except PropertiesError as error:
        raise PropertiesError(f"cannot read {path}: {error}") from None
    return {key: value.strip(_TRIMMED) for key, value in values.items()}

"""Pickles objects that a job sends from its driver to its tasks: readers, writers, and the functions of tasks.

A release number precedes each pickle, and dataclasses are pickled by field name: a pickle from another release fails
with a one-line error and is never misread. Pickles do not outlive a job; durable data is JSON with names.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, SupportsIndex

from pyspark.cloudpickle import CloudPickler

import oncelog
from oncelog.spark.session.errors import OncelogVersionMismatch

_PACKAGE: Final = "oncelog."
_Pickler: Any = CloudPickler


class VersionedPickle:
    """Base of objects that a job pickles as a whole. ``__getstate__`` and ``__setstate__`` apply as usual."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        # The release, then the content as bytes, which are unpickled only if the releases match.
        return unpickle, (oncelog.__version__, _pickle((type(self), self.__getstate__()), protocol))


def unpickle(release: str, content: bytes) -> Any:
    """Unpickle an object from the same release of oncelog. Raises OncelogVersionMismatch."""
    # Another release may have other fields, and its pickle could be misread in silence.
    if release != oncelog.__version__:
        raise OncelogVersionMismatch(release, oncelog.__version__)
    kind, state = pickle.loads(content)
    instance = object.__new__(kind)
    if hasattr(instance, "__setstate__"):
        instance.__setstate__(state)
    else:
        instance.__dict__.update(state or {})
    return instance


def with_fields(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """Make a dataclass instance. Raises OncelogVersionMismatch if the fields differ."""
    # Builds between two releases have the same version number.
    if {field.name for field in fields(kind)} != values.keys():
        raise OncelogVersionMismatch(f"{oncelog.__version__} of another build", oncelog.__version__)
    instance = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(instance, name, value)
    return instance


def _pickle(content: Any, protocol: SupportsIndex) -> bytes:
    out = io.BytesIO()
    _FieldPickler(out, protocol.__index__()).dump(content)
    return out.getvalue()


class _FieldPickler(_Pickler):  # type: ignore[misc]  # PySpark's, which it sends everything with, has no types
    """Pickles dataclasses by field name; slotted ones are otherwise pickled by field order."""

    def reducer_override(self, value: Any) -> Any:
        # See ``pickle.Pickler``. A VersionedPickle has its own release number.
        is_own_dataclass = (
            not isinstance(value, type) and is_dataclass(value) and type(value).__module__.startswith(_PACKAGE)
        )
        if not is_own_dataclass or isinstance(value, VersionedPickle):
            return super().reducer_override(value)
        return with_fields, (type(value), {field.name: getattr(value, field.name) for field in fields(value)})

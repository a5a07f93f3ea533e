"""Objects that a job sends from its driver to its tasks, pickled: readers, writers, and the functions of tasks.

A pickle names classes and carries the values of their fields; another release of oncelog may have other fields. So the
release stands before them, and dataclasses are pickled by the names of their fields. The rule: what another oncelog
sent is refused in one line, and never read as something else.

Nothing of this outlives a job. What does is JSON with names: the offsets of a checkpoint (``stream_position``), the
sink's register (with a version, ``register_records``), a table's description and its commits' spans.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, SupportsIndex

from pyspark.cloudpickle import CloudPickler

import oncelog
from oncelog.spark.session.errors import OtherOncelog

_OURS: Final = "oncelog."
_Pickler: Any = CloudPickler


class Shipped:
    """Base of whatever a job pickles as a whole; ``__getstate__`` and ``__setstate__`` hold as ever."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """The release, then all the rest in one piece, which is opened when the release is known to be ours."""
        return unpacked, (oncelog.__version__, _packed((type(self), self.__getstate__()), protocol))


def unpacked(release: str, content: bytes) -> Any:
    """The object that was pickled, if this is the oncelog that did it. Raises OtherOncelog."""
    if release != oncelog.__version__:
        raise OtherOncelog(release, oncelog.__version__)
    kind, state = pickle.loads(content)
    made = object.__new__(kind)
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
    else:
        made.__dict__.update(state or {})
    return made


def with_fields(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """A dataclass's instance with the values of its fields. Raises OtherOncelog if its fields are other ones."""
    if {one.name for one in fields(kind)} != values.keys():
        raise OtherOncelog(f"{oncelog.__version__} of another build", oncelog.__version__)
    made = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def _packed(content: Any, protocol: SupportsIndex) -> bytes:
    out = io.BytesIO()
    _ByName(out, protocol.__index__()).dump(content)
    return out.getvalue()


class _ByName(_Pickler):  # type: ignore[misc]  # PySpark's, which it sends everything with, has no types
    """Pickles our dataclasses by the names of their fields; as they are slotted, it would be by their order."""

    def reducer_override(self, one: Any) -> Any:
        """See ``pickle.Pickler``; what is Shipped itself has a release of its own."""
        is_ours = not isinstance(one, type) and is_dataclass(one) and type(one).__module__.startswith(_OURS)
        if not is_ours or isinstance(one, Shipped):
            return super().reducer_override(one)
        return with_fields, (type(one), {each.name: getattr(one, each.name) for each in fields(one)})

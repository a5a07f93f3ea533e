"""oncelog: a commit log that speaks the Kafka protocol, with exactly-once that can be inspected.

docs/public-surface.md names what programs may rely on; everything else in this package is internal. ``read_arrow``
(typed in ``__init__.pyi``) is imported when needed: the broker never loads numpy and pyarrow.
"""

from __future__ import annotations

from oncelog.base.lazy_names import lazy_names

__all__ = ["read_arrow"]
__version__ = "0.1.0"

__getattr__ = lazy_names(__name__, {"read_arrow": ".arrow"})

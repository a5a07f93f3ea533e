"""``oncelog mirror``: run a mirror, look at its offsets, verify its copies."""

from oncelog.cli.mirror.app import app

__all__ = ["app"]

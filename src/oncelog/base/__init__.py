"""Shared by every room: ids, error codes, units, ``invariant`` and transaction verdicts; standard library only."""

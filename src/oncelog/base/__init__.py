"""What every room may import: ids, error codes, units and ``invariant``; standard library only."""

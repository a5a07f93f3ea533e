"""Rules about what crosses the wire, numbered W1, W2, …; ``observer`` puts them together."""

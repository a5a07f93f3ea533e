"""Rules about what is on a broker's disk, numbered D1, D2, …; ``observer`` puts them together."""

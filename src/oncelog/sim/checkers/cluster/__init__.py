"""Rules about several brokers, numbered R1, R2, …; ``observer`` puts them together."""

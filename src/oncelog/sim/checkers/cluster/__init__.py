"""Rules for clusters of several brokers, numbered R1, R2, …; ``observer`` combines them."""

"""Rules for a broker's disk, numbered D1, D2, …; ``observer`` combines them."""

"""The registry beside other people's clients, and its instances while they are killed and frozen."""

"""Records of a running node for operators: the flight recorder, and transactions as metrics."""

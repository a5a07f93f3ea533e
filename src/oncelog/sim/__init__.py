"""A deterministic world in virtual time: machines, a network, faults by seed, workloads, and checkers."""

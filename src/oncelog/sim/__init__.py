"""The deterministic simulator: machines and a network in virtual time, faults by seed, workloads, and checkers."""

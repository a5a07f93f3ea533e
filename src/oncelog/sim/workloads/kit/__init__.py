"""Shared parts of workloads: the recorder of histories, programs that send and read, and hand-made requests."""

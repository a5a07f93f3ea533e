"""The parts of workloads: the history they write, programs that send and read, requests by hand."""

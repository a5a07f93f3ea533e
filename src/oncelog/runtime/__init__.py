"""asyncio sockets, real files, worker threads, signals, metrics export: the only room with I/O, threads and wall time."""

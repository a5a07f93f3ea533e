"""asyncio sockets, real files, worker threads, signals, metrics: the only room with I/O, threads and wall time."""

"""asyncio sockets, files, worker threads, signals and metrics: the only room with I/O, threads and wall-clock time."""

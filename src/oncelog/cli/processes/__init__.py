"""Commands that run a process: a broker, a console."""

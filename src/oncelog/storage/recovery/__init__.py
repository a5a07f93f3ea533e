"""Opening a partition directory: what an interrupted job left is put right, then the log is trusted or recovered."""

"""``oncelog produce`` and ``oncelog consume``: records from files and pipes, and records as text."""

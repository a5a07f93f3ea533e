"""``oncelog produce`` and ``oncelog consume``: records in from files and pipes, and out as text."""

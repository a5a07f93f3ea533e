"""``oncelog load``, ``stream``, ``compact``, ``export``: tables on the command line. ``oncelog.spark`` works."""

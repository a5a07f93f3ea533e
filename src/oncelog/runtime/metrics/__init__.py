"""``/metrics`` and ``/health``: counts of the node in Prometheus text. Imported only when they are served."""

"""``/metrics`` and ``/health``: the node's counters as Prometheus text. Imported only when they are served."""

"""``oncelog topic``: topics, their moves between brokers (``moves``), and the throttle of moves (``throttles``)."""

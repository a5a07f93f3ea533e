"""``oncelog topic``: topics, their moves between brokers (``moves``), and how fast those may be (``throttles``)."""

"""The client side of the protocol: ``machine`` is sans-I/O, ``blocking`` drives it over sockets."""

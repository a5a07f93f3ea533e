"""TLS: key and trust stores, contexts that follow their files, handshakes beside the loop, connections over them."""

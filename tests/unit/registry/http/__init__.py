"""Tests of the registry's routes, without sockets."""

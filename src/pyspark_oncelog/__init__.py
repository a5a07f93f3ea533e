"""Lets Spark find ``format("oncelog")`` without registration."""

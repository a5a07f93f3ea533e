"""The answer to each API, in rooms by subject: its errors, its authorisation, one call into the core.

``registry`` lists them all; ``broker`` is what they see of their broker.
"""

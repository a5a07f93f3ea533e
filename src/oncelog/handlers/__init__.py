"""Request handlers, one function per API: check errors and authorisation, then make one call into the core.

``registry`` lists them all; ``broker`` has the ports through which they see their broker.
"""

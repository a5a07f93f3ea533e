"""The container image, written by a script from Debian packages and the wheel: no daemon, no root, no emulation.

Equal sources and equal packages give equal images: nothing here depends on the clock, the umask or the user.
"""

"""Signs of life or death that a link has of the broker at its other end."""

from __future__ import annotations

from enum import Enum


class Sign(Enum):
    """One sign, told when it is noticed."""

    REACHED = "it answers"
    BROKEN = "a connection ended with requests unanswered"
    REFUSED = "nobody listens"

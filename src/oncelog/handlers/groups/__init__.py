"""Consumer groups: membership, offsets, coordinators, administration."""

"""Values that a thread makes and an answer sends as they come: searches and tails."""

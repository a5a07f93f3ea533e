"""Input of strangers and broken disks: fuzzing, with memory and time as oracles; the largest frames."""

"""What strangers and broken disks feed to the broker: fuzzing, with memory and time as oracles; the largest frames."""

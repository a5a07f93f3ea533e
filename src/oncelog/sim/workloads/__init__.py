"""What simulated clients do: programs over production clients that write down what they did and saw."""

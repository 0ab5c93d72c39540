"""Looking at a step without changing it."""

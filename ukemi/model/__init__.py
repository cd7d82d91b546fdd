"""What a robot is, where it is and what acts on it."""

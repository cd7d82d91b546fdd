"""Contact points of two shapes each."""

"""When moving shapes first touch."""

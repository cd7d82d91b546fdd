"""Robot files, from what a user has in hand to a model."""

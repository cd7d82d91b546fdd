"""Contact laws, and what they share."""

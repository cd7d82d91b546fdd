"""Collision of primitive shapes: which contacts there are, and their geometry."""

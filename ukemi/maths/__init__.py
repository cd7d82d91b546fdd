"""Rotations, spatial vectors, linear maps and systems."""

"""Smooth mechanics by tree algebra: poses, inertia, forces."""

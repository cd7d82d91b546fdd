"""Shapes that are polytopes, and others beside them: which features are nearest, and contacts from these."""

"""Derivatives of what is found by search: the implicit rule, and what carries it."""

"""Dojo: hard contact with the exact friction cone, by an interior point method."""

"""Rows that bind the joints: limits, dry friction, equalities and contacts."""

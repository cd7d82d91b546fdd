"""DiffMJX's adaptive integration."""

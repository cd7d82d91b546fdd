"""Contact laws, and what they share."""

from ukemi.laws.rigid import memory  # noqa: F401  every state has it, though names of laws are imported when first used

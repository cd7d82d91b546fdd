"""Solvers of the soft-constraint problem; they own no derivatives."""

from ukemi.solvers.newton import newton

SOLVERS = {"Newton": newton}

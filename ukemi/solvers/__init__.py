"""Solvers of the soft-constraint problem; they own no derivatives."""

from ukemi.solvers.cg import cg
from ukemi.solvers.newton import newton
from ukemi.solvers.pgs import pgs

SOLVERS = {"Newton": newton, "CG": cg, "PGS": pgs}

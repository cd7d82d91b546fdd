"""Gradient rules: which linear system stands in for the derivative of a step (design: the one idea).

A rule is a value that a contact law is given, `uk.LCP(gradient=uk.Bounce())`. None changes the forward pass. A law
refuses a rule that it cannot honour when it is constructed.
"""

import equinox as eqx

from ukemi.errors import InputError


class Rule(eqx.Module):
    """How a step is differentiated."""


class Exact(Rule):
    """The derivative of the step itself; at points without one, a valid subgradient."""


def require(law: str, rule, allowed: tuple[type[Rule], ...]) -> None:
    """Refuse a gradient rule that a contact law cannot honour."""
    if not isinstance(rule, allowed):
        names = ", ".join(f"uk.{kind.__name__}()" for kind in allowed)
        raise InputError(f"{law}(gradient={rule!r}): this law offers {names}.")

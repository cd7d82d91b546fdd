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


class Bounce(Rule):
    """`Exact`, with the change of the time of impact of what bounces.

    A step does not resolve when a body hits, so its exact derivative says that a body which starts nearer ends nearer.
    It ends farther, since it turns round earlier: ∂φ⁺/∂φ = −e (Nimble, section VI).
    """


class ComplementarityAware(Rule):
    """Reverse mode only: contacts let go or hold on as the loss wants them to (Nimble, section IV-D).

    The exact derivative of a resting contact is zero along everything that would open it, and stays so. Here contacts
    that the loss pulls apart count as separating and those that it presses together as clamped, where that makes the
    gradient in velocities and forces larger than the exact one.
    """


def require(law: str, rule, allowed: tuple[type[Rule], ...]) -> None:
    """Refuse a gradient rule that a contact law cannot honour."""
    if not isinstance(rule, allowed):
        names = ", ".join(f"uk.{kind.__name__}()" for kind in allowed)
        raise InputError(f"{law}(gradient={rule!r}): this law offers {names}.")

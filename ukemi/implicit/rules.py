"""Gradient rules: which linear system stands in for the derivative of a step (docs/architecture.md: the one residual).

A rule is a value that a contact law is given, `uk.LCP(gradient=uk.Bounce())`. None changes the forward pass. A law
refuses a rule that it cannot honour when it is constructed.
"""

import equinox as eqx
from jax.typing import ArrayLike

from ukemi.errors import InputError
from ukemi.values import check_number, check_positive, number_or_array, plain, shown


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


class FromDistance(Rule):
    """Derivatives as if contacts acted from a distance, up to `width` apart (Paulus et al., section 4).

    The motion is that without the rule, bitwise; only its derivative is that of a softened law, at the same state.
    There the impedance goes on beyond touching, by a spline like `solimp`'s; and the reference spring's deflection −r
    is a softplus, which rises from zero over about `onset`. A large onset lets bodies at rest act from afar, too,
    but stiffens the softened law where they touch, which a fixed time step may not bear.

    Args:
        width: distance up to which contacts act [m].
        d_c: impedance at `width`.
        d_0: impedance at touching; left out, the contact's own.
        midpoint: of the spline, as in `solimp`.
        power: of the spline, as in `solimp`.
        onset: distance over which the deflection rises [m].
    """

    width: float = eqx.field(converter=plain, static=True, default=0.05)
    d_c: float = eqx.field(converter=plain, static=True, default=0.0)
    d_0: float | None = eqx.field(converter=plain, static=True, default=None)
    midpoint: float = eqx.field(converter=plain, static=True, default=0.5)
    power: float = eqx.field(converter=plain, static=True, default=2.0)
    onset: float = eqx.field(converter=plain, static=True, default=1e-3)

    def __check_init__(self):
        distance, share = "must be a positive distance [m]", "an impedance lies in [0, 1)"
        for name, good, meaning in (
            ("width", lambda x: x > 0, distance),
            ("d_c", lambda x: 0 <= x < 1, share),
            ("d_0", lambda x: 0 <= x < 1, share),
            ("midpoint", lambda x: 0 < x < 1, "lies between 0 and 1"),
            ("power", lambda x: x >= 1, "must be 1 or more"),
            ("onset", lambda x: x > 0, distance),
        ):
            if name != "d_0" or self.d_0 is not None:
                check_number("FromDistance", name, getattr(self, name), good, meaning)


class CentralPath(Rule):
    """The derivative of a softer law, in which contacts push from a distance (Dojo, IV-C).

    The motion is that without the rule, bitwise. Its derivative is that of the point of the central path at this κ: a
    second solve, made where a derivative is asked for. The larger κ, the more gradients know of contacts that are not
    touched, and the less of how hard those are.

    Args:
        kappa: κ [N s m]: what is at a distance φ is pushed by an impulse κ/φ. An array, too, so that programs which
            differ in it alone are compiled once, and may be differentiated by it.
        width: distance from half of which on contacts push less than that, and beyond which not at all [m].
    """

    kappa: ArrayLike = eqx.field(converter=number_or_array, default=1e-4)
    width: float = eqx.field(converter=plain, static=True, default=0.1)

    def __check_init__(self):
        check_positive("CentralPath", "kappa", self.kappa)
        check_number("CentralPath", "width", self.width, lambda x: x > 0, "must be a positive distance [m]")


def require(law: str, rule, allowed: tuple[type[Rule], ...]) -> None:
    """Refuse a gradient rule that a contact law cannot honour."""
    if not isinstance(rule, allowed):
        names = ", ".join(f"uk.{kind.__name__}()" for kind in allowed)
        raise InputError(f"{law}(gradient={shown(rule)}): this law offers {names}.")

"""Tendons of a compiled model."""

import mujoco
import numpy as np

from ukemi.files.leaves import leaf
from ukemi.files.limits import limit_rows
from ukemi.model.tendons import TendonLayout, Tendons

_Wrap = mujoco.mjtWrap


def tendons(m, names: tuple[str, ...]) -> Tendons:
    """The tendons of a compiled model."""
    terms, coefficients, spans, divisors = _parts(m)
    layout = TendonLayout(
        terms=np.array(terms, np.int32).reshape(-1, 2),
        spans=np.array(spans, np.int32).reshape(-1, 6),
        limit_rows=limit_rows(m.tendon_limited, m.tendon_range, m.tendon_margin),
        force_limited=np.array(m.tendon_actfrclimited, bool),
        dry=np.nonzero(m.tendon_frictionloss)[0].astype(np.int32),
        springs=bool(np.any(m.tendon_stiffness) or np.any(m.tendon_stiffnesspoly)),
        plastic=_places(m.tendon_plasticadr),
        damped=bool(np.any(m.tendon_damping) or np.any(m.tendon_dampingpoly)),
        heavy=bool(np.any(m.tendon_armature)),
        width=np.array(m.tendon_width, np.float32),
        rgba=np.array(m.tendon_rgba, np.float32),
        names=names,
    )
    arrays = {
        "stiffness": m.tendon_stiffness,
        "stiffness_poly": m.tendon_stiffnesspoly,
        "spring": m.tendon_lengthspring,
        "springyield": m.tendon_springyield,
        "damping": m.tendon_damping,
        "damping_poly": m.tendon_dampingpoly,
        "armature": m.tendon_armature,
        "frictionloss": m.tendon_frictionloss,
        "range": m.tendon_range,
        "margin": m.tendon_margin,
        "solref_limit": m.tendon_solref_lim,
        "solimp_limit": m.tendon_solimp_lim,
        "solref_friction": m.tendon_solref_fri,
        "solimp_friction": m.tendon_solimp_fri,
        "length0": m.tendon_length0,
        "invweight": m.tendon_invweight0,
        "actuator_range": m.tendon_actfrcrange,
        "coefficient": coefficients,
        "divisor": divisors,
    }
    return Tendons(**{k: leaf(x) for k, x in arrays.items()}, layout=layout)


def _places(first) -> np.ndarray:
    """(nt, 2) from the first of two places, -1 where there are none."""
    return np.where(first[:, None] >= 0, first[:, None] + np.arange(2), -1).astype(np.int32)


def _parts(m) -> tuple[list, list, list, list]:
    """Terms (tendon, joint) of sums and their coefficients; spans of strings, and divisors of their pulleys."""
    terms, coefficients, spans, divisors = [], [], [], []
    for t in range(m.ntendon):
        last, geom, side, pulley = -1, -1, -1, -1
        for k in range(m.tendon_adr[t], m.tendon_adr[t] + m.tendon_num[t]):
            kind, element, value = int(m.wrap_type[k]), int(m.wrap_objid[k]), float(m.wrap_prm[k])
            if kind == _Wrap.mjWRAP_JOINT:
                terms.append((t, element))
                coefficients.append(value)
            elif kind == _Wrap.mjWRAP_PULLEY:
                pulley, last = len(divisors), -1  # a new branch begins
                divisors.append(value)
            elif kind == _Wrap.mjWRAP_SITE:
                if last >= 0:
                    spans.append((t, last, element, geom, side, pulley))
                last, geom, side = element, -1, -1
            else:
                geom, side = element, round(value)
    return terms, coefficients, spans, divisors

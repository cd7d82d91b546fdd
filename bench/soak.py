"""Run a robot under random controls for very long in single precision and count what goes wrong, silently or not.

    python bench/soak.py [MODEL] [STEPS] [WORLDS] [LAW]

A world whose status says that it failed goes back to its start, as a user's would. Not a number without a status bit is
a bug.
"""

import dataclasses
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import ukemi as uk
from ukemi.model.records import Input

CHUNK = 250  # steps between two looks at the result
HOLD = 10  # steps that a control is held


@dataclasses.dataclass
class Report:
    """What happened in all worlds together."""

    steps: int = 0
    silent: int = 0  # steps with a NaN or infinity and no status bit
    not_finite: int = 0  # worlds set back because a number was not finite
    not_converged: int = 0  # steps in which the solver did not converge
    overflow: int = 0  # steps with more contacts than the model holds
    unfinished: int = 0  # worlds whose time did not advance
    fastest: float = 0.0  # largest speed seen
    highest: float = 0.0  # largest coordinate seen


def soak(name: str, steps: int, worlds: int = 16, law: str = "Soft", seed: int = 0, out=None) -> Report:
    """Simulate `steps` steps, shared among the worlds."""
    model = uk.load(name)
    method = getattr(uk, law)()
    low, high = model.actuators.ctrl_range.T
    start = uk.initial_state(model, 0 if model.keyframes.names else None)
    many = jax.tree.map(lambda x: jnp.broadcast_to(x, (worlds, *x.shape)), start)

    def one(carry, key):
        state, ctrl = carry
        fresh = jax.random.uniform(key, low.shape, low.dtype, low, high)
        ctrl = jnp.where(jnp.round(state.time / model.options.timestep) % HOLD == 0, fresh, ctrl)
        clear = state.status * 0
        after = method.step(model, uk.State(state.q, state.v, state.act, state.time, clear, state.cache), Input(ctrl))
        finite = jnp.isfinite(after.q).all() & jnp.isfinite(after.v).all() & jnp.isfinite(after.act).all()
        failed = (after.status & uk.Status.NOT_FINITE) != 0
        seen = (
            ~finite & (after.status == 0),
            failed,
            (after.status & uk.Status.NOT_CONVERGED) != 0,
            (after.status & uk.Status.CONTACT_OVERFLOW) != 0,
            jnp.where(finite, jnp.abs(after.v).max(), 0.0),
            jnp.where(finite, jnp.abs(after.q).max(), 0.0),
        )
        reset = failed | ~finite
        after = jax.tree.map(lambda a, b: jnp.where(reset, a, b), start, after)
        return (after, ctrl), seen

    @jax.jit
    def chunk(state, ctrl, key):
        keys = jax.random.split(key, (CHUNK, worlds))
        return jax.lax.scan(lambda carry, k: jax.vmap(one)(carry, k), (state, ctrl), keys)

    report, ctrl = Report(), jnp.zeros((worlds, model.nu))
    for k in range(-(-steps // (CHUNK * worlds))):
        before = np.asarray(many.time)
        (many, ctrl), seen = chunk(many, ctrl, jax.random.key(seed + k))
        seen = [np.asarray(x) for x in seen]
        report.steps += CHUNK * worlds
        report.silent += int(seen[0].sum())
        report.not_finite += int(seen[1].sum())
        report.not_converged += int(seen[2].sum())
        report.overflow += int(seen[3].sum())
        report.unfinished += int(((np.asarray(many.time) <= before) & ~seen[1].any(0)).sum())
        report.fastest = max(report.fastest, float(seen[4].max()))
        report.highest = max(report.highest, float(seen[5].max()))
        if out and k % 25 == 24:
            print(report, file=out, flush=True)
    return report


if __name__ == "__main__":
    model = sys.argv[1] if len(sys.argv) > 1 else "humanoid"
    total = int(float(sys.argv[2])) if len(sys.argv) > 2 else 1_000_000
    began = time.time()
    law = sys.argv[4] if len(sys.argv) > 4 else "Soft"
    result = soak(model, total, int(sys.argv[3]) if len(sys.argv) > 3 else 16, law, out=sys.stdout)
    print(f"{model}, {law}, {time.time() - began:.0f} s: {result}")
    sys.exit(result.silent > 0)

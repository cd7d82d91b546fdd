"""Time of rigid contact: uk.LCP's step with its Jacobian beside Nimble's, and its step beside the soft law's.

Usage: python bench/rigid.py [--nimble-python FILE] [--shared FOLDER] [--rounds N]

Nimble needs an environment of its own (see nimble_worker.py); without one its column stays empty. All in one run, on
one machine, least CPU time of alternating rounds; JAX_ENABLE_X64=1 chooses float64.
"""

import argparse
import os
from pathlib import Path

import gradients as g
import jax
import jax.numpy as jnp
import peers
import tables

import ukemi as uk

HERE = Path(__file__).resolve().parent
SCENES = HERE.parent / "examples"
# robot, its file, Nimble's name for it, promised ratio; at rest after SETTLE steps without control
ROBOTS = (
    ("half_cheetah", "half_cheetah", "half-cheetah", 4.0),
    ("jump-worm", str(SCENES / "jump_worm.xml"), "jump-worm", 3.0),
    ("catapult", str(SCENES / "catapult.xml"), "catapult", 3.0),
    ("humanoid", "humanoid", "", None),
    ("quadruped", "quadruped", "", None),
)
SETTLE = 400
SOFT, COMPILE = 3.0, 10.0  # promised: humanoid's step as a multiple of the soft law's, and seconds to compile


def settled(model: uk.Model) -> tuple[uk.State, jax.Array]:
    """The state after SETTLE steps of rigid contact, and the share of the last 100 that the first guess solved."""
    start = uk.initial_state(model, 0 if model.keyframes.names else None)
    ctrl = model.keyframes.ctrl[0] if model.keyframes.names else jnp.zeros(model.nu)
    states = uk.rollout(model, start, jnp.tile(ctrl, (SETTLE, 1)), uk.LCP())
    hits = (states.cache.iterations[-100:] == 1).mean()
    return jax.tree.map(lambda x: x[-1], states), hits


def figures(source: str, rounds: int) -> dict[str, float]:
    """Microseconds per call of one robot, seconds to compile, and how often the last step's sides were right."""
    model = uk.load(source)
    state, hits = settled(model)
    ctrl = model.keyframes.ctrl[0] if model.keyframes.names else jnp.zeros(model.nu, state.q.dtype)
    states, ctrls = jax.tree.map(lambda x: jnp.broadcast_to(x, (g.LOOP, *x.shape)), (state, ctrl))
    rigid, soft = uk.LCP(), uk.Soft()
    compiled = {
        "compile": g.clocks(lambda: uk.step(model, state, ctrl, rigid))[0],
        "compile jacobian": g.clocks(lambda: uk.linearize(model, state, ctrl, rigid))[0],
    }
    runs = {
        "jacobian": g.scanned(lambda s, c: uk.linearize(model, s, c, rigid), states, ctrls),
        "step": g.scanned(lambda s, c: uk.step(model, s, c, rigid), states, ctrls),
        "soft": g.scanned(lambda s, c: uk.step(model, s, c, soft), states, ctrls),
    }
    times: dict[str, list] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(g.clocks(run))
    found = {name: float(1e6 * g.least(samples)[0] / g.LOOP) for name, samples in times.items()}
    return found | compiled | {"hits": float(hits), "contacts": float((state.cache.laws["rigid"].contacts >= 0).sum())}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--nimble-python", default=os.environ.get("NIMBLE_PYTHON"))
    parser.add_argument("--shared", type=Path, default=os.environ.get("UKEMI_SHARED", HERE.parents[1] / "shared"))
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    nimble = peers.nimble_peer(args.nimble_python, args.shared, timeout=400)
    rows = []
    for name, source, theirs, promise in ROBOTS:
        found = figures(source, args.rounds)
        peer = nimble.get(theirs, {}).get("least")
        ratio = tables.verdict(float(peer) / found["jacobian"], promise, at_least=True) if peer else ""
        bound = SOFT if name == "humanoid" else None
        rows.append([
            name, f"{found['contacts']:.0f}", f"{found['jacobian']:.0f}", f"{float(peer):.0f}" if peer else "", ratio,
            f"{found['step']:.0f}", tables.verdict(found["step"] / found["soft"], bound), f"{found['hits']:.0%}",
            tables.verdict(found["compile"], COMPILE), tables.verdict(found["compile jacobian"], COMPILE),
        ])  # fmt: skip
    heads = ["", "contacts", "step + A, B µs", "Nimble µs", "ratio", "step µs", "of Soft's", "guess right"]
    heads += ["step compiles in s", "A, B in s"]
    tables.table(f"Rigid contact, {jnp.zeros(()).dtype}, CPU time", heads, rows)


if __name__ == "__main__":
    main()

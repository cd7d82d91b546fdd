"""Single shooting: random starts, then gradient descent on the best of them."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array


class Shot(NamedTuple):
    """The best controls that were found."""

    knots: Array  # (knots, nu)
    value: float  # of the loss
    losses: np.ndarray  # (iterations,)


def shoot(
    loss: Callable,
    starts: np.ndarray,
    *,
    rate: float,
    iterations: int,
    tries: int = 1,
    progress: Callable | None = None,
) -> Shot:
    """Minimise `loss(knots)` from the best `tries` of the starts (n, knots, nu).

    Adam, with a rate that falls to zero and gradients no longer than one: where contact is made later or not at all, a
    gradient may be a thousand times longer than beside it.
    """
    values = np.asarray(jax.jit(lambda x: jax.lax.map(loss, x))(jnp.asarray(starts)))
    slope, shots = jax.jit(jax.value_and_grad(loss)), []
    for number, start in enumerate(np.argsort(values)[:tries]):
        shots.append(_descend(slope, jnp.asarray(starts[start]), rate, iterations, number, progress))
    return min(shots, key=lambda shot: shot.value)


def _descend(slope: Callable, knots: Array, rate: float, iterations: int, number: int, progress) -> Shot:
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(rate, iterations)))
    memory, losses, best = optimizer.init(knots), [], (np.inf, knots)
    for k in range(iterations):
        value, along = slope(knots)
        losses.append(float(value))
        best = min(best, (losses[-1], knots), key=lambda found: found[0])
        change, memory = optimizer.update(along, memory)
        knots = optax.apply_updates(knots, change)
        if progress:
            progress(number, k, best[0])
    return Shot(best[1], best[0], np.array(losses))


def random_starts(count: int, knots: int, nu: int, step: float, seed: int = 0) -> np.ndarray:
    """Random walks (count, knots, nu) away from nothing, which is the first of them."""
    walks = np.cumsum(np.random.default_rng(seed).normal(size=(count, knots, nu)) * step, axis=1)
    walks[0] = 0
    return walks


def arguments(description: str | None, iterations: int) -> argparse.Namespace:
    """What the command line of an example asks for."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=iterations, help=f"of descent (default: {iterations})")
    parser.add_argument("--out", type=Path, help="write a picture")
    return parser.parse_args()


def report(number: int, iteration: int, value: float) -> None:
    """Show how far a descent is."""
    sys.stderr.write(f"\rstart {number + 1}, iteration {iteration}: best {value:.4g}   ")

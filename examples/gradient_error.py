"""What the accuracy of a gradient costs: fixed steps against steps under error control (Paulus et al., Fig. 5 and 17).

A box is tossed as in `toss.py`. How far the final position is off, and the derivative of its x in the initial speed u,
is set against the run time of the rollout and of its gradient (in reverse mode), for time steps of the fixed-step law
and tolerances of `uk.Adaptive`. What counts as right are central differences of a rollout at a tolerance of 1e-12.
"""

import jax

jax.config.update("jax_enable_x64", True)

import time  # noqa: E402
from typing import NamedTuple  # noqa: E402

import diffrax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from scenes import arguments, save, say, toss  # noqa: E402

import ukemi as uk  # noqa: E402

SECONDS = 1.0
SOLVERS = {"Bosh3": diffrax.Bosh3(), "Dopri5": diffrax.Dopri5(), "Tsit5": diffrax.Tsit5(), "Dopri8": diffrax.Dopri8()}
FIXED, REFERENCE = "fixed step", "reference"


class Point(NamedTuple):
    """What one setting gives, and what it costs."""

    name: str  # of the solver
    setting: float  # time step [s] or tolerance
    ends: np.ndarray  # (speeds, 3) final positions [m]
    slopes: np.ndarray  # (speeds,) derivative of the final x in u [s]
    run: tuple[float, float]  # of rollout and gradient, per speed [s]
    compile: tuple[float, float]  # of their programs [s]; zero where an earlier setting's served


def end(model: uk.Model, method, steps: int, u) -> uk.State:
    """Final state of the box, thrown at u."""
    start = uk.initial_state(model, v=jnp.array([0, -0.1, 0, 0, 0, 0]).at[0].set(u))
    return jax.tree.map(lambda x: x[-1], uk.rollout(model, start, jnp.zeros((steps, 0)), method))


class Programs:
    """Rollout and gradient for time steps of one length; the tolerance is an argument and compiles nothing anew."""

    def __init__(self, model: uk.Model, method, steps: int, u: float):
        def last(u, tolerance):
            return end(model, method(tolerance), steps, u)

        def slope(u, tolerance):
            return jax.grad(lambda u: last(u, tolerance).q[0])(u)

        self.functions, self.compile = [], []
        for function in (last, slope):
            begin = time.perf_counter()
            self.functions.append(jax.jit(function).lower(u, 1e-6).compile())
            self.compile.append(time.perf_counter() - begin)

    def point(self, name: str, setting: float, speeds, rounds: int = 2) -> Point:
        """Results at a tolerance, and the least run times of some rounds."""
        rollout, gradient = ([self.timed(f, setting, speeds) for _ in range(rounds)] for f in self.functions)
        run = min(seconds for seconds, _ in rollout), min(seconds for seconds, _ in gradient)
        spent, self.compile = self.compile, [0.0, 0.0]
        return Point(name, setting, positions(rollout[0][1]), np.array(gradient[0][1]), run, (spent[0], spent[1]))

    @staticmethod
    def timed(function, setting: float, speeds) -> tuple[float, list]:
        """Wall time per call, and the results."""
        begin = time.perf_counter()
        found = jax.block_until_ready([function(u, setting) for u in speeds])
        return (time.perf_counter() - begin) / len(speeds), found


def positions(states: list[uk.State]) -> np.ndarray:
    """Positions (n, 3) of rollouts' ends; raises where one failed."""
    for state in states:
        uk.raise_if_failed(state)
    return np.array([state.q[:3] for state in states])


def adaptive(solver: diffrax.AbstractERK):
    """Function tolerance -> law, with the controller that `uk.Adaptive` has by default."""

    def method(tolerance):
        controller = diffrax.PIDController(tolerance, 1e-2 * tolerance, pcoeff=0.2, icoeff=0.4)
        return uk.Adaptive(controller=controller, solver=solver, max_steps=4000)

    return method


def fixed_points(timesteps, speeds, seconds: float = SECONDS):
    """The soft law at several time steps."""
    for h in timesteps:
        model = uk.load(toss("box", timestep=h))
        programs = Programs(model, lambda _: uk.Soft(), round(seconds / h), float(speeds[0]))
        yield programs.point(FIXED, h, speeds)


def adaptive_programs(name: str, speeds, seconds: float = SECONDS) -> Programs:
    """The programs of `uk.Adaptive` with one of the solvers, for every tolerance."""
    model = uk.load(toss("box"))
    return Programs(model, adaptive(SOLVERS[name]), round(seconds / float(model.options.timestep)), float(speeds[0]))


def adaptive_points(name: str, tolerances, speeds):
    """`uk.Adaptive` at several tolerances."""
    programs = adaptive_programs(name, speeds)
    for tolerance in tolerances:
        yield programs.point(name, tolerance, speeds)


def reference(programs: Programs, speeds: np.ndarray, tolerance: float = 1e-12, h: float = 1e-5) -> Point:
    """Final positions, and central differences of them."""
    ends, ahead, behind = (
        positions(programs.timed(programs.functions[0], tolerance, speeds + d)[1]) for d in (0, h, -h)
    )
    return Point(REFERENCE, tolerance, ends, (ahead - behind)[:, 0] / (2 * h), (0.0, 0.0), (0.0, 0.0))


def errors(point: Point, true: Point) -> tuple[float, float]:
    """Median over the speeds of the error of the final position [m] and, relative, of the derivative."""
    place = np.linalg.norm(point.ends - true.ends, axis=1)
    slope = np.abs(point.slopes - true.slopes) / np.abs(true.slopes)
    return float(np.median(place)), float(np.median(slope))


def main() -> None:
    """Measure all settings, print them as a table and plot."""
    uk.enable_cache()
    parser = arguments(__doc__, "gradient_error.png")
    parser.add_argument("--timesteps", type=float, nargs="*", default=[2e-3, 1e-3, 5e-4, 2e-4, 1e-4], help="[s]")
    parser.add_argument("--tolerances", type=float, nargs="*", default=[1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9])
    parser.add_argument("--solvers", nargs="*", choices=SOLVERS, default=list(SOLVERS))
    parser.add_argument("--points", type=int, default=7, help="initial speeds in [-2.1, -1.9]")
    options = parser.parse_args()
    speeds = np.linspace(-2.1, -1.9, options.points)
    say("Reference …")
    true = reference(adaptive_programs("Tsit5", speeds), speeds)
    print("solver      setting  place [m]  gradient   rollout [s]  gradient [s]  compile [s]")
    points = []
    series = [fixed_points(options.timesteps, speeds)]
    series += [adaptive_points(name, options.tolerances, speeds) for name in options.solvers]
    for one in series:
        for point in one:
            points.append(point)
            place, slope = errors(point, true)
            compiled = f"{point.compile[0]:5.1f} {point.compile[1]:5.1f}" if any(point.compile) else ""
            print(
                f"{point.name:10s} {point.setting:8.0e}  {place:9.1e}  {slope:8.1e}   "
                f"{point.run[0]:11.4f}  {point.run[1]:12.4f}  {compiled}".rstrip(),
                flush=True,
            )
    plot(options.out, points, true)


def plot(path, points: list[Point], true: Point) -> None:
    """Both errors against the time of what has them."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    for name in dict.fromkeys(point.name for point in points):
        own = [point for point in points if point.name == name]
        found = np.array([errors(point, true) for point in own])
        style = {"color": "black", "marker": "s"} if name == FIXED else {"marker": "o"}
        for k, axis in enumerate(axes):
            axis.loglog([point.run[k] for point in own], found[:, k], label=name, markersize=4, **style)
    axes[0].set(xlabel="run time of the rollout [s]", ylabel="error of the final position [m]")
    axes[1].set(xlabel="run time of the gradient [s]", ylabel="relative error of the gradient")
    axes[1].legend(frameon=False)
    save(figure, path)


if __name__ == "__main__":
    main()

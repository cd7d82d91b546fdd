"""The command line: `ukemi simulate MODEL`, `ukemi inspect MODEL`, `ukemi check MODEL`.

Nothing heavy is imported before the arguments are parsed, so that `--help` and a mistyped option answer at once.
Errors that Ukemi raises on purpose are shown as one message, exit code 2.
"""

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ukemi.errors import InputError, ModelFileError, UkemiError

METHODS = {"soft": "Soft", "lcp": "LCP", "ncp": "NCP", "maximal": "Maximal", "impact": "Impact", "adaptive": "Adaptive"}
OK, UNSUPPORTED, WRONG, FAILED, INTERRUPTED = 0, 1, 1, 2, 130

_CHUNKS = 40  # movements of the progress bar
_RANDOM_HOLD = 0.05  # how long a random control lasts [s]


def main(argv: list[str] | None = None) -> int:
    """Run the command line with `argv` (default: the process's own) and return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return arguments.run(arguments)
    except UkemiError as error:
        print(f"ukemi: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("\nukemi: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


class _Version(argparse.Action):
    """`--version`: what a report of a fault should name."""

    def __call__(self, parser, *_):
        from importlib.metadata import version

        print(*(f"{name} {version(name)}" for name in ("ukemi", "jax", "mujoco")), sep=", ")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    models = ", ".join(sorted(path.stem for path in (Path(__file__).parent / "models").glob("*.xml")))
    parser = argparse.ArgumentParser(
        prog="ukemi", description="Simulate robots with differentiable contact.", epilog=f"Built-in models: {models}."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the versions of Ukemi and what it stands on")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    source = "path of an MJCF or URDF file, or a built-in name"

    simulate = commands.add_parser(
        "simulate", help="simulate a model and record it", epilog=f"Built-in models: {models}.",
        description="Simulate a model, print what happened, and record it.",
    )  # fmt: skip
    simulate.set_defaults(run=_simulate)
    simulate.add_argument("model", metavar="MODEL", help=source)
    simulate.add_argument("--seconds", type=_positive, default=5.0, help="simulated time [s] (default: 5)")
    simulate.add_argument(
        "--method", choices=METHODS, default="soft", help="contact law and integrator (default: soft)"
    )
    simulate.add_argument(
        "--ctrl", choices=("zero", "random", "hold"), default="zero",
        help="controls: zero; random within their range, a new one every 0.05 s; or hold: the keyframe's controls, "
        "and without a keyframe position servos keep the start pose (default: zero)",
    )  # fmt: skip
    simulate.add_argument("--seed", type=int, default=0, help="seed of random controls (default: 0)")
    simulate.add_argument("--keyframe", metavar="NAME", help="start from this keyframe, a name or a number")
    simulate.add_argument("--out", type=Path, metavar="RUN.npz", help="write states, controls, energies and contacts")
    simulate.add_argument("--replay", type=Path, metavar="RUN.html", help="write a replay for the browser")
    simulate.add_argument("--plot", type=Path, metavar="RUN.png", help="write a plot over time (needs matplotlib)")

    inspect = commands.add_parser(
        "inspect", help="show what is in a model, and what of it is not supported",
        description="Show what is in a model. The exit code is 1 if something in it is not supported.",
    )  # fmt: skip
    inspect.set_defaults(run=_inspect)
    inspect.add_argument("model", metavar="MODEL", help=source)
    inspect.add_argument("--all", action="store_true", help="do not cut long tables")

    check = commands.add_parser(
        "check", help="compare the gradients of a model with differences", epilog=f"Built-in models: {models}.",
        description="Compare derivatives of a step with central differences, for the state, the controls and every "
        "parameter of a model, at random states in contact. Takes a minute or so, most of it to compile. The exit code "
        "is 1 if a derivative is off by more than one millionth.",
    )  # fmt: skip
    check.set_defaults(run=_check)
    check.add_argument("model", metavar="MODEL", help=source)
    check.add_argument("--samples", type=_count, default=10, metavar="N", help="number of states (default: 10)")
    check.add_argument("--method", choices=METHODS, default="soft", help="contact law (default: soft)")
    check.add_argument("--seed", type=int, default=0, help="seed of the random states (default: 0)")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive whole number")
    return int(text)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _read(source: str):
    """The compiled file; an unknown name is answered with the names there are."""
    from ukemi.files.source import builtin_names, read

    try:
        return read(source)
    except ModelFileError as error:
        listing = ", ".join(builtin_names())
        if os.path.exists(source) or listing in str(error):
            raise
        raise ModelFileError(f"{error}\nBuilt-in models: {listing}") from None


def _inspect(arguments) -> int:
    from ukemi.files.source import label
    from ukemi.files.support import unsupported
    from ukemi.view.inspect import describe

    m = _read(arguments.model)
    print(describe(m, label(arguments.model), everything=arguments.all))
    return UNSUPPORTED if unsupported(m) else OK


def _check(arguments) -> int:
    source = _read(arguments.model)
    import jax

    jax.config.update("jax_enable_x64", True)
    import ukemi as uk

    _keep_programs(uk)
    model = uk.load(source)
    method = _method(uk, arguments.method)
    _say(f"Compiling {Path(arguments.model).stem} for {type(method).__name__} …\n")

    def progress(done: int, states: int):
        if sys.stderr.isatty():
            _say(f"\r{_bar(done / states)} {done} / {states} states " + ("\n" if done == states else ""))

    report = uk.check_gradients(model, method, samples=arguments.samples, seed=arguments.seed, progress=progress)
    print(report)
    return OK if report.compared and not report.failed else WRONG


def _simulate(arguments) -> int:
    _check_outputs(arguments)
    source = _read(arguments.model)
    import jax

    jax.config.update("jax_enable_x64", True)
    import ukemi as uk
    from ukemi.view.recorder import Recorder

    _keep_programs(uk)
    model = uk.load(source)
    method = _method(uk, arguments.method)
    keyframe = arguments.keyframe
    if keyframe is not None and keyframe not in model.keyframes.names and keyframe.isdecimal():
        keyframe = int(keyframe)
    state = uk.initial_state(model, keyframe)
    steps = max(1, round(arguments.seconds / float(model.options.timestep)))
    ctrls = _controls(arguments, model, state, source, steps, keyframe)
    title = Path(arguments.model).stem
    recorder = Recorder(model, method, source=source, title=title)
    timing = _run(uk, model, method, state, ctrls, recorder, title)
    print(_summary(recorder, timing))
    _write(arguments, recorder, title, METHODS[arguments.method])
    recorder.raise_if_failed()
    return OK


def _check_outputs(arguments):
    """Find out before the simulation, not after it, that an output cannot be written."""
    from ukemi import values

    for name, suffix in {"out": ".npz", "replay": ".html"}.items():
        path = getattr(arguments, name)
        if path is not None:
            values.check_suffix(f"--{name}", path, (suffix,))
    for path in (arguments.out, arguments.replay, arguments.plot):
        if path is None:
            continue
        if path.is_dir():
            raise InputError(f"'{path}' is a directory; give the name of a file.")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"The folder '{path.parent}' cannot be made: {error.strerror}.") from None
        if not os.access(path.parent, os.W_OK):
            raise InputError(f"The folder '{path.parent}' is not writable.")
    if arguments.plot is not None:
        from ukemi.view.plot import supported

        values.check_suffix("--plot", arguments.plot, supported())


def _method(uk, name: str):
    kind = getattr(uk, METHODS[name], None)
    if kind is None:
        there = ", ".join(key for key, value in METHODS.items() if hasattr(uk, value))
        raise InputError(f"The method '{name}' is not in this version of Ukemi; methods: {there}.")
    return kind()


def _controls(arguments, model, state, source, steps: int, keyframe):
    """Controls of every step, (steps, nu)."""
    import numpy as np

    low, high = np.full(model.nu, -1.0), np.full(model.nu, 1.0)
    span = np.asarray(model.actuators.ctrl_range)
    limited = np.asarray(model.actuators.layout.ctrl_limited, bool) & np.isfinite(span).all(-1)
    low[limited], high[limited] = span[limited, 0], span[limited, 1]
    if arguments.ctrl == "random":
        hold = max(1, round(_RANDOM_HOLD / float(model.options.timestep)))
        values = np.random.default_rng(arguments.seed).uniform(low, high, (-(-steps // hold), model.nu))
        return np.repeat(values, hold, axis=0)[:steps]
    one = np.zeros(model.nu)
    if arguments.ctrl == "hold":
        from ukemi.simulate.stepping import keyframe_index

        one = _servo_targets(source, state)
        if keyframe is not None:
            stored = np.asarray(model.keyframes.ctrl)[keyframe_index(model, keyframe)]
            one = stored if stored.any() else one
        one[limited] = np.clip(one, low, high)[limited]
    return np.tile(one, (steps, 1))


def _servo_targets(m, state):
    """Control of each position servo that makes the start pose its target, 0 for other controls, (nu,)."""
    import mujoco
    import numpy as np

    data = mujoco.MjData(m)
    data.qpos[:] = state.q
    mujoco.mj_kinematics(m, data)
    mujoco.mj_comPos(m, data)
    mujoco.mj_transmission(m, data)
    kp = m.actuator_gainprm[:, 0]
    servo = (
        (kp != 0) & np.isclose(kp, -m.actuator_biasprm[:, 1]) & (m.actuator_biastype == mujoco.mjtBias.mjBIAS_AFFINE)
    )
    controller = np.isin(m.actuator_gaintype, (int(mujoco.mjtGain.mjGAIN_PID), int(mujoco.mjtGain.mjGAIN_DCMOTOR)))
    servo |= controller & ((m.actuator_ctrlspec & int(mujoco.mjtCtrlInput.mjINPUT_POS)) != 0)  # its first control
    out = np.zeros(m.nu)
    out[m.actuator_ctrladr[servo]] = data.actuator_length[m.actuator_outadr[servo]]
    return out


def _run(uk, model, method, state, ctrls, recorder, title: str) -> dict[str, float]:
    """Roll out chunk by chunk, record each, move the bar; how long compiling and stepping took, and the rate."""
    import jax
    import numpy as np

    # One moment more than steps, so that the last state is recorded too. Every chunk has the same length, or the last
    # one would be compiled anew; what runs over is cut off.
    moments, h = len(ctrls) + 1, float(model.options.timestep)
    chunk = -(-moments // _CHUNKS)
    padded = np.concatenate([ctrls, np.repeat(ctrls[-1:], -len(ctrls) % chunk or chunk, axis=0)])
    begin = time.perf_counter()
    _say(f"Compiling {title} for {type(method).__name__} … ")
    rollout = _compile(uk, model, method, state, padded[:chunk], recorder)
    timing = {"compile": time.perf_counter() - begin, "step": 0.0, "rate": 0.0}
    _say(f"{timing['compile']:.1f} s\n")
    for first in range(0, moments, chunk):
        part = padded[first : first + chunk]
        begin = time.perf_counter()
        states = jax.block_until_ready(rollout(state, part))
        timing["step"] += time.perf_counter() - begin
        timing["rate"] = (first + chunk) * h / timing["step"]
        recorder.add(state, states, part, keep=min(chunk, moments - first))
        state = jax.tree.map(lambda leaf: leaf[-1], states)
        _progress(min(first + chunk, moments - 1), moments - 1, h, timing["rate"])
    return timing


def _compile(uk, model, method, state, ctrls, recorder):
    """The compiled rollout over a chunk of controls; the recorder gets its own program."""
    import jax

    rollout = jax.jit(lambda state, ctrls: uk.rollout(model, state, ctrls, method))
    programs = rollout.lower(state, ctrls), recorder.lower(state, jax.eval_shape(rollout, state, ctrls), ctrls)
    with ThreadPoolExecutor() as pool:  # XLA compiles outside Python's lock
        rollout, observe = pool.map(lambda lowered: lowered.compile(), programs)
    recorder.use(observe)
    jax.block_until_ready(rollout(state, ctrls))  # the first call also loads the program, which is no stepping
    return rollout


def _progress(done: int, steps: int, h: float, rate: float):
    """Draw the bar over itself; a file or a pipe gets none."""
    if sys.stderr.isatty():
        _say(f"\r{_bar(done / steps)} {done * h:.2f} / {steps * h:.2f} s, {_times(rate)} real time ")
        if done == steps:
            _say("\n")


def _keep_programs(uk) -> None:
    """Keep compiled programs for the next time, where there is a folder for them."""
    try:
        uk.enable_cache()
    except uk.InputError as error:
        _say(f"{error}\n")


def _say(text: str):
    sys.stderr.write(text)
    sys.stderr.flush()


def _bar(share: float, width: int = 32) -> str:
    full = round(width * share)
    return "━" * full + "─" * (width - full)


def _times(rate: float) -> str:
    return f"{rate:.3g}×" if rate < 100 else f"{rate:,.0f}×"


def _write(arguments, recorder, title: str, method: str):
    written = []
    if arguments.out is not None:
        written.append(recorder.write_npz(arguments.out))
    if arguments.replay is not None:
        from ukemi.view.replay import write_replay

        written.append(write_replay(arguments.replay, *recorder.replay(), subtitle=method))
    if arguments.plot is not None:
        from ukemi.view.plot import plot_run

        written.append(plot_run(arguments.plot, recorder.trace(), title=f"{title}, {method}"))
    for path in written:
        print(f"Wrote {path}")


def _summary(recorder, timing: dict[str, float]) -> str:
    """What happened, in two columns."""
    rows = recorder.summary()
    rows.append(("speed", f"{_times(timing['rate'])} real time, {timing['step']:.2f} s of computing"))
    rows.append(("compiling", f"{timing['compile']:.1f} s"))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name.ljust(width)}  {value}" for name, value in rows)


if __name__ == "__main__":
    sys.exit(main())

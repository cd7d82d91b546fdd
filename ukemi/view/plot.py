"""A picture of a run over time: joint positions, energy, contacts."""

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ukemi.errors import InputError

_NAMED_LINES = 12  # more lines than this get no legend of their own


@dataclass(frozen=True)
class Trace:
    """Numbers of a run over time; `T` moments."""

    time: np.ndarray  # (T,) [s]
    angles: dict[str, np.ndarray] = field(default_factory=dict)  # each (T,) [rad]
    positions: dict[str, np.ndarray] = field(default_factory=dict)  # each (T,) [m]
    kinetic: np.ndarray | None = None  # (T,) [J]
    potential: np.ndarray | None = None  # (T,) [J]
    contacts: np.ndarray | None = None  # (T,) how many touch
    normal_force: np.ndarray | None = None  # (T,) their summed normal force [N]

    def __post_init__(self):
        shape = np.shape(self.time)
        columns = {**self.angles, **self.positions, "kinetic": self.kinetic, "potential": self.potential,
                   "contacts": self.contacts, "normal_force": self.normal_force}  # fmt: skip
        for name, values in columns.items():
            if values is not None and np.shape(values) != shape:
                raise InputError(f"Trace '{name}' has shape {np.shape(values)}; time has {shape}.")


def require_matplotlib():
    """Raise `InputError` if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError("Plots need matplotlib, which is not installed: pip install 'ukemi[view]'.")


def supported() -> tuple[str, ...]:
    """Suffixes of pictures that can be written."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    return tuple(f".{kind}" for kind in FigureCanvasAgg.get_supported_filetypes())


def plot_run(path, trace: Trace, *, title: str = "") -> Path:
    """Draw a run as a PNG (or what the suffix of `path` says) and return its path; panels without data are left out.

    Raises:
        InputError: matplotlib is not installed.
    """
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = []
    if trace.positions:
        panels.append(lambda axes: _lines(axes, trace.time, trace.positions, "position [m]"))
    if trace.angles:
        panels.append(lambda axes: _lines(axes, trace.time, trace.angles, "angle [rad]"))
    if trace.kinetic is not None and trace.potential is not None:
        panels.append(lambda axes: _energy(axes, trace))
    if trace.contacts is not None:
        panels.append(lambda axes: _contacts(axes, trace.time, trace.contacts, trace.normal_force))
    if not panels:
        raise InputError("The trace holds nothing to plot.")
    # A Figure of its own, without pyplot: the user's backend and open figures are left alone.
    figure = Figure(figsize=(10, 0.6 + 2.3 * len(panels)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for draw, axes in zip(panels, grid, strict=True):
        draw(axes)
        axes.grid(True, color="0.9")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0)
    grid[-1].set_xlabel("time [s]")
    if title:
        figure.suptitle(title, fontweight="bold", x=0.02, ha="left")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def _legend(axes, count: int):
    """Beside the panel, where it hides no line."""
    size = 8 if count <= 6 else 6.5
    axes.legend(loc="upper left", bbox_to_anchor=(1.005, 1.02), frameon=False, fontsize=size, labelspacing=0.25,
                handlelength=1.4, borderaxespad=0)  # fmt: skip


def _lines(axes, time, lines: dict[str, np.ndarray], label: str):
    from matplotlib import colormaps

    many = len(lines) > _NAMED_LINES
    colors = colormaps["turbo"](np.linspace(0.06, 0.94, len(lines))) if len(lines) > 8 else [f"C{k}" for k in range(8)]
    # Of many joints those that moved most are named: they are what a reader wants to identify.
    spans = {name: np.ptp(values) for name, values in lines.items()}
    named = sorted(spans, key=lambda name: spans[name], reverse=True)[: _NAMED_LINES - 1] if many else list(lines)
    for color, (name, values) in zip(colors, lines.items(), strict=False):
        axes.plot(time, values, lw=1.3, color=color, alpha=0.9, label=name if name in named else None)
    if many:
        axes.plot([], [], " ", label=f"and {len(lines) - len(named)} more")
    axes.set_ylabel(label)
    _legend(axes, len(named))


def _energy(axes, trace: Trace):
    kinetic, potential = np.asarray(trace.kinetic), np.asarray(trace.potential)
    axes.plot(trace.time, kinetic, lw=1.3, color="C3", label="kinetic")
    axes.plot(trace.time, potential, lw=1.3, color="C0", label="potential")
    axes.plot(trace.time, kinetic + potential, lw=1.8, color="0.15", label="total")
    axes.set_ylabel("energy [J]")
    _legend(axes, 3)


def _contacts(axes, time, contacts, normal_force):
    axes.fill_between(time, contacts, step="mid", color="0.82", lw=0, label="contacts")
    axes.set_ylabel("contacts")
    axes.set_ylim(0, max(1, np.max(contacts)) * 1.15)
    axes.yaxis.get_major_locator().set_params(integer=True)
    if normal_force is not None:
        right = axes.twinx()
        right.plot(time, normal_force, lw=1.2, color="#e4572e")
        peak, top = float(np.max(normal_force)), _usual_top(normal_force)
        cut = f"\n(peak {peak:.3g})" if peak > top else ""
        right.set_ylabel(f"normal force [N]{cut}", color="#c8431c")
        right.tick_params(axis="y", colors="#c8431c")
        right.spines[["top", "left"]].set_visible(False)
        right.set_ylim(0, top)
        right.margins(x=0)


def _usual_top(force) -> float:
    """Top of the force axis: impacts far above the rest are cut off, else nothing but them could be read."""
    force = np.asarray(force)
    peak, usual = float(np.max(force)), float(np.quantile(force, 0.99))
    top = peak if peak < 4 * usual else 2 * usual
    return 1.1 * top or 1.0

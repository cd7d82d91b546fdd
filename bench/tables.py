"""What is promised of derivatives, and tables of figures beside it."""

import sys

RATIOS = {  # promised: MuJoCo's time as a multiple of ours
    "humanoid": 10.0,
    "A1, pyramidal feet only": 8.0,
    "A1, as shipped": 25.0,
    "G1": 12.0,
    "half_cheetah": 3.0,
}
NIMBLE = {"half-cheetah": ("half_cheetah", 4.0), "Atlas, box feet": ("Atlas, box feet", 10.0)}  # ours, promised ratio
LINEARIZE_COMPILE, GRADIENT_COMPILE = 6.0, 10.0  # promised, humanoid [s]
REVERSE = 2.0  # promised: gradient of a rollout as a multiple of the rollout
MJX = 2.0  # promised: MJX's gradient as a multiple of ours
MEMORY = 2.0  # promised [GB]
LONG = 10_000  # steps of the rollout whose memory is measured


def verdict(value: float, bound: float | None, at_least: bool = False) -> str:
    """A figure beside what is promised of it; a promise that is not kept says so."""
    if bound is None:
        return f"{value:.3g}"
    kept = value >= bound if at_least else value <= bound
    return f"{value:.3g} ({'≥' if at_least else '≤'} {bound:g}{'' if kept else ' MISSED'})"


def table(title: str, heads: list[str], rows: list[list[str]]) -> None:
    """Print aligned columns."""
    widths = [max(len(row[k]) for row in [heads, *rows]) for k in range(len(heads))]
    print(f"\n{title}")
    for row in [heads, *rows]:
        print("  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:]))]).rstrip())
    sys.stdout.flush()


def show_linearize(dtype: str, found: dict) -> None:
    """The table of steps with Jacobians."""
    heads = ["", "dofs", "contacts", "MuJoCo µs", "Ukemi µs", "wall µs", "step µs", "call µs", "ratio", "first call s"]
    rows, missing = [], []
    for name, row in found.items():
        if name in ("versions", "skipped"):
            continue
        if "skipped" in row:
            missing.append(f"{name}: {row['skipped']}")
            continue
        base, first = name.removesuffix(", moving"), not name.endswith(", moving")  # where it has to compile
        limit = LINEARIZE_COMPILE if name == "humanoid" else None
        cells = [name, str(row["dofs"]), f"{row['contacts']:.3g}"]
        cells += [f"{row[key]:.0f}" for key in ("mujoco", "ours", "wall", "step", "call")]
        cells.append(verdict(row["mujoco"] / row["ours"], RATIOS.get(base), at_least=True))
        cells += [verdict(row["compile s"], limit), f"{row['compile cpu s']:.3g}"] if first else ["", ""]
        rows.append([*cells, f"{row['error']:.0e}", row["failed"]])
    title = f"Step with A and B, {dtype}: MuJoCo's differences (float64) against uk.linearize; {found.get('versions')}"
    table(title, [*heads, "CPU s", "disagreement", "failed steps"], rows)
    for reason in [*missing, *([f"incomplete: {found['skipped']}"] if "skipped" in found else [])]:
        print(reason, flush=True)


def show_rollout(dtype: str, found: dict, mjx: dict) -> None:
    """The table of reverse mode through rollouts, beside MJX's."""
    heads = ["worlds x steps", "forward µs", "gradient µs", "multiple", "wall µs", "wall multiple"]
    heads += ["compile s", "CPU s", "MJX µs", "ratio", "finite"]
    rows = []
    for name, row in found.items():
        if not isinstance(row, dict):
            continue
        worlds = name.partition(" ")[0]
        theirs = mjx.get(f"humanoid, {worlds} world{'s' * (worlds != '1')}", {}).get("least")
        against = (f"{theirs:.0f}", verdict(theirs / row["gradient"], MJX, at_least=True)) if theirs else ("", "")
        cells = [name, f"{row['forward']:.1f}", f"{row['gradient']:.1f}"]
        cells += [verdict(row["gradient"] / row["forward"], REVERSE), f"{row['gradient wall']:.1f}"]
        cells += [f"{row['gradient wall'] / row['forward wall']:.3g}"]
        cells += [verdict(row["gradient compile s"], GRADIENT_COMPILE), f"{row['gradient compile cpu s']:.3g}"]
        rows.append([*cells, *against, str(row["finite"])])
    table(f"Reverse-mode gradient of a humanoid rollout, {dtype}, per step and world", heads, rows)
    if "skipped" in found:
        print(f"incomplete: {found['skipped']}")


def show_memory(found: dict[str, dict]) -> None:
    """The table of peak memory."""
    rows = []
    for name, row in found.items():
        if "skipped" in row:
            rows.append([f"{name}: {row['skipped']}", *[""] * 4])
            continue
        peak = verdict(row["peak"], MEMORY if name == "gradient" else None)
        rows.append([name, peak, f"{row['compiled']:.3g}", f"{row['cpu s']:.3g}", f"{row['wall s']:.3g}"])
    heads = ["", "peak GB", "of which to compile GB", "first run CPU s", "wall s"]
    table(f"Memory of a rollout of {LONG} humanoid steps, float32", heads, rows)


def show_nimble(found: dict, ours: dict[str, dict]) -> None:
    """Nimble's step with five Jacobians beside ours."""
    rows = []
    for name, row in found.items():
        if "skipped" in row:
            rows.append([f"{name}: {row['skipped']}", *[""] * 5])
            continue
        mine, promise = NIMBLE.get(name, ("", None))
        cells = [name, str(row["dofs"]), str(row["contacts"]), f"{row['least']:.0f}"]
        for dtype in ("float64", "float32"):
            cpu = ours.get(dtype, {}).get(mine, {}).get("ours")
            cells.append(f"{cpu:.0f}: {verdict(row['least'] / cpu, promise, at_least=True)}" if cpu else "")
        rows.append(cells)
    heads = ["", "dofs", "contacts", "Nimble µs", "Ukemi float64 µs: ratio", "Ukemi float32 µs: ratio"]
    table("Nimble: step with five Jacobians, against uk.linearize", heads, rows)

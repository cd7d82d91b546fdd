"""A robot file as text: bodies and joints, actuators, geoms, equalities, options, and what Ukemi makes of them."""

import mujoco
import numpy as np

from ukemi.collide.kinds import KINDS, OTHER
from ukemi.files.decomposing import hull_excess
from ukemi.files.support import ignored, unsupported

_LONGEST = 60  # rows of a table before it is cut


def describe(m: mujoco.MjModel, title: str, *, everything: bool = False) -> str:
    """A report on a compiled model; tables are cut after 60 rows unless `everything`."""
    limit = None if everything else _LONGEST
    sections = [
        ("", _overview(m, title)),
        ("Bodies and joints", table(("body", "mass [kg]", "joint", "type", "range", "details"), _bodies(m), limit)),
        (
            "Actuators",
            table(("actuator", "kind", "acts on", "gear", "control range", "force range"), _actuators(m), limit),
        ),
        ("Geoms", table(("geom", "body", "type", "size [m]", "collides", "condim", "friction"), _geoms(m), limit)),
        ("Equalities", table(("equality", "type", "between"), _equalities(m), limit)),
        ("Keyframes", "  " + ", ".join(_name(m, "key", k) for k in range(m.nkey)) if m.nkey else ""),
        ("Options", table(("option", "value"), _options(m), None)),
        ("Ignored (no effect on the motion)", _bullets(ignored(m))),
        ("Unsupported", _bullets(unsupported(m)) or "  nothing: Ukemi can simulate this model"),
    ]
    return "\n\n".join(f"{heading}\n{body}" if heading else body for heading, body in sections if body)


def table(header: tuple[str, ...], rows: list[tuple], limit: int | None = None) -> str:
    """Columns padded to their widest cell, with an underlined header; "" without rows."""
    if not rows:
        return ""
    cut = rows if limit is None else rows[:limit]
    lines = [tuple(str(cell) for cell in row) for row in (header, *cut)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(header))]
    lines.insert(1, tuple("─" * width for width in widths))
    text = [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    ]
    if len(cut) < len(rows):
        text.append(f"  … and {len(rows) - len(cut)} more (--all shows them)")
    return "\n".join(text)


def _bullets(lines: list[str]) -> str:
    return "\n".join(f"  - {line}" for line in lines)


def _name(m: mujoco.MjModel, kind: str, i: int) -> str:
    """Name of an element, or its number in square brackets."""
    name = mujoco.mj_id2name(m, getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}"), int(i))
    return name or f"[{i}]"


def _word(enum: type, value: int) -> str:
    """The XML word of an enum value: mjJNT_HINGE -> hinge."""
    return enum(int(value)).name.split("_", 1)[1].lower()


def _span(low_high, digits: str = ".4g") -> str:
    return f"{low_high[0]:{digits}} … {low_high[1]:{digits}}"


def _numbers(values) -> str:
    return " ".join(f"{value:.4g}" for value in values)


def _overview(m: mujoco.MjModel, title: str) -> str:
    counts = {"body": m.nbody - 1, "joint": m.njnt, "actuator": m.nactuator, "geom": m.ngeom, "equality": m.neq}
    plural = {"body": "bodies", "equality": "equalities"}
    words = [
        f"{n} {kind if n == 1 else plural.get(kind, kind + 's')}"
        for kind, n in counts.items()
        if n or kind != "equality"
    ]
    return (
        f"{title}\n  {', '.join(words)}\n"
        f"  coordinates nq = {m.nq}, degrees of freedom nv = {m.nv}, controls nu = {m.nu}, activations na = {m.na}, "
        f"mass {m.body_mass.sum():.4g} kg"
    )


def _bodies(m: mujoco.MjModel) -> list[tuple]:
    """One row per joint, under its body; bodies are indented by depth."""
    rows, depth = [], np.zeros(m.nbody, int)
    for b in range(1, m.nbody):
        depth[b] = depth[m.body_parentid[b]] + 1
        name = "  " * (depth[b] - 1) + _name(m, "body", b)
        mass = f"{m.body_mass[b]:.4g}"
        first, count = m.body_jntadr[b], m.body_jntnum[b]
        if count == 0:
            rows.append((name, mass, "", "mocap" if m.body_mocapid[b] >= 0 else "fixed", "", ""))
        for j in range(first, first + count):
            top = j == first
            rows.append((name if top else "", mass if top else "", *_joint(m, j)))
    return rows


def _joint(m: mujoco.MjModel, j: int) -> tuple[str, str, str, str]:
    kind, dof = _word(mujoco.mjtJoint, m.jnt_type[j]), m.jnt_dofadr[j]
    span = ""
    if m.jnt_limited[j]:
        span = _span(np.rad2deg(m.jnt_range[j])) + " °" if kind in ("hinge", "ball") else _span(m.jnt_range[j]) + " m"
    details = {
        "stiffness": m.jnt_stiffness[j], "damping": m.dof_damping[dof],
        "armature": m.dof_armature[dof], "friction loss": m.dof_frictionloss[dof], "yields at": m.jnt_springyield[j],
    }  # fmt: skip
    text = ", ".join(f"{word} {value:.4g}" for word, value in details.items() if value)
    return _name(m, "joint", j), kind, span, text


def _actuators(m: mujoco.MjModel) -> list[tuple]:
    rows = []
    for i in range(m.nactuator):
        gear = m.actuator_gear[m.actuator_outadr[i]]
        gear = _numbers(gear[:1] if not gear[1:].any() else gear)
        control = ", ".join(_controls(m, i)) or "none"
        force = _span(m.actuator_forcerange[i]) if m.actuator_forcelimited[i] else "unlimited"
        kind = _actuator_kind(m, i) + (f", {m.actuator_delay[i]:.4g} s late" if m.actuator_delay[i] else "")
        rows.append((_name(m, "actuator", i), kind, _target(m, i), gear, control, force))
    return rows


def _controls(m: mujoco.MjModel, i: int) -> list[str]:
    """Each control of an actuator, by its name where it has several: within what it is held."""
    first, number = m.actuator_ctrladr[i], m.actuator_ctrlnum[i]
    spans = [_span(m.actuator_ctrlrange[k]) if m.actuator_ctrllimited[k] else "unlimited"
             for k in range(first, first + number)]  # fmt: skip
    return spans if number == 1 else [f"{mujoco.mj_actuatorInputName(m, i, k)} {span}" for k, span in enumerate(spans)]


def _actuator_kind(m: mujoco.MjModel, i: int) -> str:
    """The shortcut that would make such an actuator, as far as its gains tell."""
    gain, bias = m.actuator_gainprm[i], m.actuator_biasprm[i]
    dynamics = _word(mujoco.mjtDyn, m.actuator_dyntype[i])
    gain_type, bias_type = _word(mujoco.mjtGain, m.actuator_gaintype[i]), _word(mujoco.mjtBias, m.actuator_biastype[i])
    if gain_type in ("pid", "dcmotor"):
        return _servo_kind(m, i)
    if gain_type == "so3":
        kind = f"orientation kp {gain[0]:.4g}" + (f" kv {-bias[2]:.4g}" if bias[2] else "")
        return kind if dynamics == "none" else f"{kind}, {dynamics}"
    if gain_type == "fixed" and bias_type == "none":
        kind = "motor" if gain[0] == 1 else f"motor × {gain[0]:.4g}"
    elif gain_type == "fixed" and bias_type == "affine" and gain[0] == -bias[1] and bias[0] == 0:
        kind = f"position kp {gain[0]:.4g}" + (f" kv {-bias[2]:.4g}" if bias[2] else "")
    elif gain_type == "fixed" and bias_type == "affine" and gain[0] == -bias[2] and not bias[:2].any():
        kind = f"velocity kv {gain[0]:.4g}"
    else:
        kind = f"gain {gain_type}, bias {bias_type}"
    return kind if dynamics == "none" else f"{kind}, {dynamics}"


def _servo_kind(m: mujoco.MjModel, i: int) -> str:
    """A PID controller or a DC motor, with its gains and what it has beside them."""
    gain, bias, dynamics = m.actuator_gainprm[i], m.actuator_biasprm[i], m.actuator_dynprm[i]
    if _word(mujoco.mjtGain, m.actuator_gaintype[i]) == "pid":
        kind, gains, has = "pid", (-bias[1], gain[0], -bias[2]), {"slew": dynamics[1], "integral": gain[0]}
    else:
        kind, gains = f"dcmotor R {gain[0]:.4g} K {gain[1]:.4g}", (gain[4], gain[5], gain[6])
        has = {"slew": dynamics[7], "integral": gain[5], "temperature": dynamics[2], "friction": dynamics[5]}
        has |= {"current": dynamics[0], "cogging": bias[0]}
    words = [f"{word} {value:.4g}" for word, value in zip(("kp", "ki", "kd"), gains, strict=True) if value]
    parts = [word for word, value in has.items() if value]
    return ", ".join([" ".join([kind, *words]), *parts])


def _target(m: mujoco.MjModel, i: int) -> str:
    kind = _word(mujoco.mjtTrn, m.actuator_trntype[i])
    if kind == "so3":
        kind = "joint" if m.actuator_trnid[i, 1] < 0 else "site"
    objects = {"joint": "joint", "jointinparent": "joint", "site": "site", "tendon": "tendon", "body": "body"}
    if kind not in objects:
        return kind
    return f"{kind} {_name(m, objects[kind], m.actuator_trnid[i, 0])}"


def _geoms(m: mujoco.MjModel) -> list[tuple]:
    rows = []
    for g in range(m.ngeom):
        kind = _word(mujoco.mjtGeom, m.geom_type[g])
        shape = KINDS.get(kind, OTHER)
        size = m.geom_size[g, : len(shape.sizes)]
        text = "endless" if shape.endless and not size.any() else _numbers(size)
        if m.geom_type[g] == mujoco.mjtGeom.mjGEOM_MESH and m.geom_dataid[g] >= 0:
            text = f"{_name(m, 'mesh', m.geom_dataid[g])}, {m.mesh_facenum[m.geom_dataid[g]]} triangles"
        if shape.ground:
            text = _field(m, int(m.geom_dataid[g]))
        collides = bool(m.geom_contype[g] or m.geom_conaffinity[g])
        if collides and kind == "mesh":
            text += f", {hull_of(m, int(m.geom_dataid[g]))}"
        dims = (m.geom_condim[g], _numbers(m.geom_friction[g])) if collides else ("", "")
        body = _name(m, "body", m.geom_bodyid[g])
        rows.append((_name(m, "geom", g), body, kind, text, "yes" if collides else "no", *dims))
    return rows


def _field(m: mujoco.MjModel, k: int) -> str:
    """Of a height field: its grid and how far it reaches."""
    x, y, z, base = m.hfield_size[k]
    data = z * m.hfield_data[m.hfield_adr[k] :][: m.hfield_nrow[k] * m.hfield_ncol[k]]
    grid = f"{_name(m, 'hfield', k)}, {m.hfield_nrow[k]} × {m.hfield_ncol[k]}"
    return f"{grid} over {2 * y:.4g} × {2 * x:.4g}, {_span((data.min(), data.max()))} high, {base:.4g} below"


def hull_of(m: mujoco.MjModel, k: int) -> str:
    """Of a mesh: its vertices, those of its hull, and by how much the hull is larger, where the mesh is closed."""
    text = f"{m.mesh_vertnum[k]} vertices"
    if m.mesh_graphadr[k] < 0:
        return f"{text}, no hull"
    text += f", hull of {m.mesh_graph[m.mesh_graphadr[k]]}"
    excess = hull_excess(m, k)
    return text if excess is None else f"{text}, {100 * excess:.0f}% larger"


def _equalities(m: mujoco.MjModel) -> list[tuple]:
    rows = []
    for i in range(m.neq):
        kind = _word(mujoco.mjtEq, m.eq_type[i])
        sites = int(m.eq_objtype[i]) == int(mujoco.mjtObj.mjOBJ_SITE)
        noun = kind if kind in ("joint", "tendon", "flex") else "site" if sites else "body"
        pair = [_name(m, noun, o) for o in (m.eq_obj1id[i], m.eq_obj2id[i]) if o >= 0]
        rows.append(
            (_name(m, "equality", i), kind + ("" if m.eq_active0[i] else " (inactive)"), f"{noun} {' and '.join(pair)}")
        )
    return rows


def _options(m: mujoco.MjModel) -> list[tuple]:
    off = [bit.name.split("_", 1)[1].lower() for bit in mujoco.mjtDisableBit.__members__.values()
           if bit.name.startswith("mjDSBL_") and m.opt.disableflags & int(bit)]  # fmt: skip
    rows = [
        ("timestep", f"{m.opt.timestep:.4g} s"),
        ("integrator", _word(mujoco.mjtIntegrator, m.opt.integrator)),
        ("solver", f"{_word(mujoco.mjtSolver, m.opt.solver)}, at most {m.opt.iterations} iterations"),
        ("friction cone", _word(mujoco.mjtCone, m.opt.cone)),
        ("gravity", f"{_numbers(m.opt.gravity)} m/s²"),
    ]
    if m.opt.impratio != 1:
        rows.append(("impratio", f"{m.opt.impratio:.4g}"))
    if m.opt.density or m.opt.viscosity:
        rows.append(("fluid", f"density {m.opt.density:.4g} kg/m³, viscosity {m.opt.viscosity:.4g} Pa s"))
    if off:
        rows.append(("switched off", ", ".join(off)))
    return rows

"""Compare one state's forward dynamics and next state with MuJoCo's, stage by stage."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import ukemi as uk
import ukemi.source
from ukemi.methods.soft import Soft
from ukemi.model import Cache, Input, State


def converged(m: mujoco.MjModel) -> mujoco.MjModel:
    """Let MuJoCo's solver run to convergence, with a dense Jacobian."""
    m.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    m.opt.tolerance = 0
    m.opt.iterations = 300
    m.opt.ls_iterations = 200
    m.opt.ls_tolerance = 1e-10
    m.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    m.opt.ccd_tolerance = 1e-12
    m.opt.ccd_iterations = 200
    return m


def random_states(m: mujoco.MjModel, n: int, seed: int = 0) -> list[tuple]:
    """(qpos, qvel, act, ctrl, warm) of n states: noise about the keyframes and qpos0, then random control for a while."""
    rng, d, out = np.random.default_rng(seed), mujoco.MjData(m), []
    limited = m.actuator_ctrllimited.astype(bool)
    low = np.where(limited, m.actuator_ctrlrange[:, 0], -1.0) if m.nu else np.zeros(0)
    high = np.where(limited, m.actuator_ctrlrange[:, 1], 1.0) if m.nu else np.zeros(0)
    tries = 0
    while len(out) < n:
        tries += 1
        mujoco.mj_resetData(m, d)
        if m.nkey and rng.random() < 0.5:
            mujoco.mj_resetDataKeyframe(m, d, rng.integers(m.nkey))
        noise = rng.choice([0.02, 0.1, 0.5])
        shift = noise * rng.normal(size=m.nv)
        for j in range(m.njnt):
            if m.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE:
                shift[m.jnt_dofadr[j] : m.jnt_dofadr[j] + 3] *= 0.3
        mujoco.mj_integratePos(m, d.qpos, shift, 1.0)
        d.qvel[:] = rng.choice([0.1, 1.0, 3.0]) * rng.normal(size=m.nv)
        d.act[:] = 0.3 * rng.normal(size=m.na)
        for _ in range(rng.integers(0, 120)):
            d.ctrl[:] = rng.uniform(low, high)
            mujoco.mj_step(m, d)
        fine = np.isfinite(d.qpos).all() and np.abs(d.qvel).max(initial=0) < 100 and np.abs(d.qpos).max(initial=0) < 100
        if not fine and tries < 20 * n:
            continue
        ctrl = rng.uniform(low, high) * rng.choice([1.0, 1.3])
        out.append(tuple(np.array(x) for x in (d.qpos, d.qvel, d.act, ctrl, d.qacc_warmstart)))
    return out


def stack(model: uk.Model, states: list[tuple]) -> tuple[State, Input]:
    """The states as one batch."""
    q, v, act, ctrl, warm = (jnp.asarray(np.stack(x)) for x in zip(*states, strict=True))
    n = len(states)
    zero = jnp.zeros(n, jnp.int32)
    return State(q, v, act, jnp.zeros(n), zero, Cache(warm, zero)), Input(ctrl)


def ours(model: uk.Model, states: list[tuple], method: Soft):
    """Forward dynamics and next states of the batch."""
    batch, inputs = stack(model, states)

    @jax.jit
    def run(batch, inputs):
        def one(state, inputs):
            return method.forward(model, state, inputs), method.step(model, state, inputs)

        return jax.vmap(one)(batch, inputs)

    return jax.tree.map(np.asarray, run(batch, inputs))


def relative(a, b, floor: float = 1.0) -> float:
    """Largest difference relative to the largest entry (or `floor`)."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        return np.inf
    return float(np.abs(a - b).max(initial=0.0) / max(floor, np.abs(b).max(initial=0.0)))


def set_state(d: mujoco.MjData, state: tuple) -> None:
    """Load a state into MuJoCo's data."""
    d.qpos[:], d.qvel[:], d.act[:], d.ctrl[:], d.qacc_warmstart[:] = state
    d.time = 0


def our_rows(model: uk.Model, method: Soft, forward, k: int) -> dict:
    """Active rows of state k in MuJoCo's form: {key: (J, aref, R)}; key names the element."""
    kinds, rows, found = method.kinds(model), forward.rows, forward.contacts
    J, aref, D = rows.J[k], rows.aref[k], rows.penalty.D[k]
    out = {"equality": (J[: kinds.equality], aref[: kinds.equality], 1 / D[: kinds.equality])}
    scalar = slice(kinds.equality, kinds.scalar)
    keep = D[scalar] > 0
    out["joint"] = (J[scalar][keep], aref[scalar][keep], 1 / D[scalar][keep])
    contacts = []
    for c in range(kinds.contacts):
        if not found.active[k, c]:
            continue
        at = kinds.scalar + c * kinds.dim
        dim = int(model.pairs.layout.condim[found.pair[k, c]])
        Jc, ac = J[at : at + dim], aref[at : at + dim]
        mu = rows.penalty.friction[k, c, : dim - 1]
        if dim > 1 and kinds.cone == "pyramidal":
            Jc = np.concatenate([[Jc[0] + m * Jc[1 + i], Jc[0] - m * Jc[1 + i]] for i, m in enumerate(mu)])
            ac = np.concatenate([[ac[0] + m * ac[1 + i], ac[0] - m * ac[1 + i]] for i, m in enumerate(mu)])
            R = np.full(2 * (dim - 1), 1 / rows.penalty.D_edge[k, c])
        else:
            R = 1 / rows.penalty.D_frame[k, c, :dim]
        pair = tuple(model.pairs.layout.geoms[found.pair[k, c]].tolist())
        contacts.append((pair, found.point[k, c], found.distance[k, c], Jc, ac, R))
    out["contacts"] = contacts
    return out


def their_rows(m: mujoco.MjModel, d: mujoco.MjData) -> dict:
    """The same from MuJoCo's data; equality rows in our order (by type)."""
    J = d.efc_J.reshape(d.nefc, m.nv) if d.nefc else np.zeros((0, m.nv))
    order = []
    ids = d.efc_id[: d.ne]
    for kind in (mujoco.mjtEq.mjEQ_CONNECT, mujoco.mjtEq.mjEQ_WELD, mujoco.mjtEq.mjEQ_JOINT):
        rows = [r for r in range(d.ne) if m.eq_type[ids[r]] == kind]
        if kind == mujoco.mjtEq.mjEQ_WELD:
            rows = [r for e in dict.fromkeys(ids[rows]) for r in rows if ids[r] == e]
            order += [r for i, r in enumerate(rows) if i % 6 < 3] + [r for i, r in enumerate(rows) if i % 6 >= 3]
        else:
            order += rows
    if any(m.eq_type == mujoco.mjtEq.mjEQ_WELD):  # points of connects and welds come as they are listed by type
        pass
    scalar = slice(d.ne, d.ne + d.nf + d.nl)
    contacts = []
    for c in d.contact:
        if c.efc_address < 0:
            continue
        frictionless = c.dim == 1
        n = c.dim if m.opt.cone == 1 or frictionless else 2 * (c.dim - 1)
        at = slice(c.efc_address, c.efc_address + n)
        contacts.append((tuple(c.geom.tolist()), np.array(c.pos), c.dist, J[at], d.efc_aref[at], d.efc_R[at]))
    return {
        "equality": (J[order], d.efc_aref[order], d.efc_R[order]),
        "joint": (J[scalar], d.efc_aref[scalar], d.efc_R[scalar]),
        "contacts": contacts,
    }


def compare_rows(a: dict, b: dict) -> tuple[dict, int]:
    """Relative errors of J, aref and R, and the number of contacts without a partner."""
    errors = {"J": 0.0, "aref": 0.0, "R": 0.0}

    def note(ours, theirs):
        for name, x, y in zip(("J", "aref", "R"), ours, theirs, strict=True):
            errors[name] = max(errors[name], relative(x, y, floor=0.0 if name == "R" else 1.0) if x.size else 0.0)

    for kind in ("equality", "joint"):
        if a[kind][0].shape != b[kind][0].shape:
            errors["J"] = np.inf
        else:
            note(a[kind], b[kind])
    left, lost = list(a["contacts"]), 0
    for pair, point, _, *rows in b["contacts"]:
        near = [i for i, c in enumerate(left) if c[0] == pair and np.abs(c[1] - point).max() < 1e-6]
        if not near:
            lost += 1
            continue
        best = min(near, key=lambda i: np.abs(left[i][1] - point).max())
        _, _, _, *mine = left.pop(best)
        note(mine, rows)
    return errors, lost + len(left)


def compare(source, n: int = 200, seed: int = 0, method: Soft | None = None, contacts: int | None = None) -> dict:
    """Worst relative errors over n random states, by stage."""
    m = converged(source if isinstance(source, mujoco.MjModel) else uk.source.read(source))
    model = uk.load(m, contacts=contacts)
    method = method or Soft(iterations=300, line_search_iterations=200, tolerance=1e-13)
    states = random_states(m, n, seed)
    forward, after = ours(model, states, method)
    d = mujoco.MjData(m)
    report = dict.fromkeys(("M", "bias", "actuator", "J", "aref", "R", "qacc", "next"), 0.0)
    report |= {"lost": 0, "active": 0, "skipped": 0, "worst": -1}
    full = np.zeros((m.nv, m.nv))
    for k, state in enumerate(states):
        set_state(d, state)
        mujoco.mj_forward(m, d)
        mujoco.mj_fullM(m, d, full)
        errors, lost = compare_rows(our_rows(model, method, forward, k), their_rows(m, d))
        errors |= {
            "M": relative(forward.smooth.M[k], full),
            "bias": relative(forward.smooth.bias[k], d.qfrc_bias),
            "actuator": relative(forward.actuation.force[k], d.actuator_force),
        }
        report["active"] += bool(d.nefc > d.nf)
        report["lost"] += lost
        if not lost:
            errors["qacc"] = relative(forward.solution.acceleration[k], d.qacc)
            set_state(d, state)
            mujoco.mj_step(m, d)
            errors["next"] = max(
                relative(after.q[k], d.qpos), relative(after.v[k], d.qvel), relative(after.act[k], d.act)
            )
        else:
            report["skipped"] += 1
        if errors.get("qacc", 0) > report["qacc"]:
            report["worst"] = k
        for name, value in errors.items():
            report[name] = max(report[name], value)
    report["status"] = int(np.bitwise_or.reduce(after.status))
    report["iterations"] = int(after.cache.iterations.max())
    return report


if __name__ == "__main__":
    import sys
    import time

    for source in sys.argv[1:]:
        start = time.time()
        try:
            report = compare(source, n=100)
        except Exception as error:  # noqa: BLE001  a survey goes on
            print(f"{source}: {type(error).__name__}: {str(error)[:300]}")
            continue
        shown = " ".join(f"{k}={v:.1e}" if isinstance(v, float) else f"{k}={v}" for k, v in report.items())
        print(f"{source.split('/')[-1]} ({time.time() - start:.0f}s): {shown}", flush=True)

"""The models that the engine is compared on, by name."""

from collections.abc import Callable

import mujoco

from tests.scenes import robots
from ukemi.files import source

SHARED = {
    "a1": "unitree_a1/a1.xml",
    "go2": "unitree_go2/go2.xml",
    "go2_mjx": "unitree_go2/go2_mjx.xml",
    "g1_mjx": "unitree_g1/g1_mjx.xml",
    "cassie": "agility_cassie/cassie.xml",
    "iiwa14": "kuka_iiwa_14/iiwa14.xml",
    "x2": "skydio_x2/x2.xml",
    "atlas_v5": "atlas/atlas_v5_lite.xml",
    "barkour_mjx": "google_barkour_vb/barkour_vb_mjx.xml",
    "panda_mjx": "franka_emika_panda/mjx_panda.xml",
}


def _case(family: str, name: str) -> Callable[[], mujoco.MjModel]:
    def make() -> mujoco.MjModel:
        if family == "ukemi":
            return source.read(name)
        if family == "gymnasium":
            m = robots.gymnasium_model(name)
            if name == "point":  # touches the floor at distance 0, where rounding decides whether it does
                floor = m.geom("floor").id
                m.geom_pos[floor, 2], m.geom_sameframe[floor] = 0.001, 0
            return m
        if family == "dm_control":
            return robots.dm_control_model(name)
        return robots.shared_robot(SHARED[name])

    return make


# "family/name" -> a function that makes the MjModel, or skips the test where the file is not to be had
CASES = {
    f"{family}/{name}": _case(family, name)
    for family, names in (
        ("ukemi", source.builtin_names()),
        ("gymnasium", robots.GYMNASIUM),
        ("dm_control", robots.DM_CONTROL),
        ("shared", SHARED),
    )
    for name in names
}

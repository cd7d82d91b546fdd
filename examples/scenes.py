"""Scenes of the DiffMJX paper (Paulus et al.), and what their scripts share."""

import argparse
import sys
from pathlib import Path

SHAPES = {
    "sphere": 'type="sphere" size=".05"',
    "capsule": 'type="capsule" size=".04 .03"',
    "box": 'type="box" size=".05 .05 .05"',
    "cylinder": 'type="cylinder" size=".05 .04"',
    "ellipsoid": 'type="ellipsoid" size=".06 .05 .04"',
}


def toss(shape: str, timestep: float = 0.002) -> str:
    """A body that is thrown onto a floor under low gravity, with stiff contact (Fig. 3 and 21)."""
    return f"""<mujoco model="{shape}"><option gravity="0 0 -2" timestep="{timestep}"/>
      <default><geom density="100" solref=".005 1" solimp="0 .95 .001 .5 2"/></default><worldbody>
      <geom type="plane" size="5 5 .1"/>
      <body pos="0 0 .2"><freejoint/><geom {SHAPES[shape]}/></body></worldbody></mujoco>"""


def billiards(table: bool = True, timestep: float = 0.01) -> str:
    """Two balls in a row, on a table, or floating without gravity and friction (Fig. 8 and 19)."""
    floor = '<geom type="plane" size="2 2 .1"/>' if table else ""
    ball = '<body pos="{} 0 .042"><freejoint/><geom size=".042" mass=".17" condim="{}"/></body>'
    condim = 3 if table else 1
    # refsafe would soften the contact at long time steps
    return f"""<mujoco model="billiards"><option gravity="0 0 {-9.81 if table else 0}" timestep="{timestep}">
      <flag refsafe="disable"/></option>
      <default><geom solref=".02 1" solimp="0 .95 .001 .5 2"/></default><worldbody>{floor}
      {ball.format(-0.375, condim)}{ball.format(-0.2, condim)}</worldbody></mujoco>"""


def arguments(description: str | None, picture: str) -> argparse.ArgumentParser:
    """A parser with --out, the path of the picture."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out") / picture, help="picture (default: %(default)s)")
    return parser


def say(text: str) -> None:
    """Report progress where it does not mix with results."""
    print(text, file=sys.stderr, flush=True)


def save(figure, path: Path) -> None:
    """Write a picture and say where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    print(f"Wrote {path}")

"""Looking at simulations: a replay for the browser and a plot of the run."""

from ukemi.view.plot import Trace, plot_run
from ukemi.view.recorder import record
from ukemi.view.replay import write_replay
from ukemi.view.scene import Frames, Mesh, Scene, scene_of

__all__ = ["Frames", "Mesh", "Scene", "Trace", "plot_run", "record", "scene_of", "write_replay"]

"""Looking at simulations: a replay for the browser and a plot of the run."""

from ukemi.view.replay import write_replay
from ukemi.view.scene import Frames, Mesh, Scene, scene_of

__all__ = ["Frames", "Mesh", "Scene", "scene_of", "write_replay"]

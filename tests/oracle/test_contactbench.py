"""Problems of ContactBench: the criteria that friction in a box must meet."""

import numpy as np
import pytest

from bench import contact_criteria as bench
from tests.scenes.robots import shared_path


@pytest.mark.parametrize("name", ["2cubes_t0", "sliding_cube"])
def test_criteria_of_a_box(name):
    folder = shared_path("data/contactbench")
    (problem,) = (given for given in bench.problems(folder) if given[0] == name)
    _, G, g, mu, _ = problem
    force, solved = bench.solve(G, g, mu)
    found = bench.criteria(G, g, mu, force)
    assert solved and max(found.signorini, found.box, found.box_dissipation) < 1e-10
    assert np.isfinite(found.ncp)


def test_criteria_know_a_solution_from_another():
    """Two contacts of unit mass without coupling: one slips, one sticks; less friction than that is found out."""
    G, mu = np.eye(6), np.array([0.5, 0.5])
    g = np.array([-2.0, 0, -1, -0.2, 0, -1])
    force, _ = bench.solve(G, g, mu)
    np.testing.assert_allclose(force, [0.5, 0, 1, 0.2, 0, 1], atol=1e-14)
    assert max(bench.criteria(G, g, mu, force)) < 1e-14
    assert bench.criteria(G, g, mu, 0.9 * force).signorini > 0.05
    weaker = force * [0.5, 1, 1, 1, 1, 1]
    assert bench.criteria(G, g, mu, weaker).box_dissipation > 0.1 and bench.criteria(G, g, mu, weaker).ncp > 0.1

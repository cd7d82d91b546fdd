"""Contact laws and time integrators."""

"""MuJoCo's soft contact."""

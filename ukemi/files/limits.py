"""Which limits of joints and tendons have rows."""

import numpy as np


def limit_rows(limited, ranges, margins, turns=None) -> np.ndarray:
    """(element, side) of each limit row: side 0 is the nearer one, which is enough unless both can act at once.

    turns: which are ball joints, whose limit has one side.
    """
    rows = []
    for k in np.nonzero(limited)[0]:
        (low, high), one_sided = ranges[k], turns is not None and turns[k]
        if np.isinf(high) and (np.isinf(low) or one_sided):
            continue  # an infinite distance has no row; if one side is finite, that is the nearer one
        both = not one_sided and high - low <= 2 * margins[k]
        rows += [(k, -1), (k, 1)] if both else [(k, 0)]
    return np.array(rows, np.int32).reshape(-1, 2)

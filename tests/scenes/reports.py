"""What tests ask of a gradient report."""

import ukemi as uk


def check(m, *effects: str, method=None, samples: int = 5, seed: int = 1, share: float = 0.5) -> uk.GradientReport:
    """No derivative is wrong, the given groups matter, and most directions could be compared.

    Those at states that are left out count as not compared.
    """
    model = uk.load(m() if callable(m) else m)
    report = uk.check_gradients(model, method, samples=samples, seed=seed)
    assert not report.failed, str(report)
    groups = {group.group: group for group in report.groups}
    for name in ("q", "v", *effects):
        assert groups[name].effect and groups[name].samples, f"{name}\n{report}"
    compared = sum(group.samples for group in report.groups)
    whole = sum(group.samples + group.boundary + group.rough for group in report.groups)
    left_out = (report.undetermined + report.unsolved) / samples
    assert compared / whole * (1 - left_out) > share, str(report)
    return report

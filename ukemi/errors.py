"""Errors that a user meets: what went wrong, where, and what to do."""


class UkemiError(Exception):
    """Base of every error that Ukemi raises on purpose."""


class ModelFileError(UkemiError):
    """The robot file is missing, malformed or empty, or holds values that mean nothing."""


class UnsupportedModelError(UkemiError):
    """The robot file holds elements that would change the motion and are not supported; all are listed."""

    def __init__(self, elements: list[str], source: str = "model"):
        self.elements = list(elements)
        listing = "\n".join(f"  - {element}" for element in self.elements)
        super().__init__(
            f"{source} uses {len(self.elements)} unsupported element(s):\n{listing}\n"
            "Remove or replace them; `ukemi inspect MODEL` shows the same list."
        )


class InputError(UkemiError):
    """An argument has the wrong name, shape, dtype or value."""


class StepError(UkemiError):
    """A simulated state carries failure bits in `status`."""


class GradientError(UkemiError):
    """A derivative was asked for that cannot be given."""

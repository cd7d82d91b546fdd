"""What every public function asks of a model, a state and a contact law together."""

from ukemi import values
from ukemi.errors import InputError
from ukemi.laws.method import Method
from ukemi.model.checks import check_model, check_state
from ukemi.model.records import Model, State

LAWS = "uk.Soft(), uk.LCP(), uk.Impact() or uk.Adaptive()"


def check(model: Model, state: State, method: Method | None = None) -> None:
    """Refuse a model, a state or a contact law that is none, or that do not belong together."""
    check_model(model)
    check_state(model, state)
    if method is not None:
        check_method(method)


def check_method(method: Method) -> None:
    """Refuse what is not a contact law."""
    if not isinstance(method, Method):
        call = f" Call it: uk.{method.__name__}()." if isinstance(method, type) and issubclass(method, Method) else ""
        raise InputError(f"method is {values.kind(method)}; give a contact law such as {LAWS}.{call}")

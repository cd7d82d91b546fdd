"""What every public function asks of a model, a state and a contact law together."""

from ukemi import values
from ukemi.errors import InputError
from ukemi.laws.memory import memory_shapes
from ukemi.laws.method import Method
from ukemi.model.checks import check_model, shapes
from ukemi.model.records import Cache, Model, State

LAWS = "uk.Soft(), uk.LCP(), uk.NCP(), uk.Maximal(), uk.Impact() or uk.Adaptive()"


def check(model: Model, state: State, method: Method | None = None) -> None:
    """Refuse a model, a state or a contact law that is none, or that do not belong together."""
    check_model(model)
    check_state(model, state)
    if method is not None:
        check_method(method)


def check_state(model: Model, state: State) -> None:
    """Refuse what is not a state, one of another model, and a batch of them."""
    if not isinstance(state, State):
        remedy = "make one with uk.initial_state(model). The model comes first, then the state"
        raise InputError(f"state is {values.kind(state)}; {remedy}.")
    own, common = shapes(model)
    values.check_fields(state, own, "state", model, " uk.initial_state(model, q=..., v=..., act=...) makes a state.")
    if not isinstance(state.cache, Cache):
        raise InputError(f"state.cache is {values.kind(state.cache)}; it is the memory that uk.initial_state makes.")
    remedy = " Such a state is another model's; uk.initial_state(model, q=..., v=..., act=...) makes one of this model."
    values.check_fields(state.cache, common, "state.cache", model, remedy)
    laws, needed = state.cache.laws, memory_shapes(model)
    if not isinstance(laws, dict) or laws.keys() != needed.keys():
        raise InputError(f"state.cache.laws is {values.shown(laws)}; it is the memory that uk.initial_state makes.")
    for name, fields in needed.items():
        values.check_fields(laws[name], fields, f"state.cache.laws[{name!r}]", model, remedy)


def check_method(method: Method) -> None:
    """Refuse what is not a contact law."""
    if not isinstance(method, Method):
        call = f" Call it: uk.{method.__name__}()." if isinstance(method, type) and issubclass(method, Method) else ""
        raise InputError(f"method is {values.kind(method)}; give a contact law such as {LAWS}.{call}")

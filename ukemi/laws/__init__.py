"""Contact laws, and what they share."""

# every state has the memory of all laws, though their names are imported when first used
from ukemi.laws.conic import memory as _conic  # noqa: F401
from ukemi.laws.rigid import memory as _rigid  # noqa: F401

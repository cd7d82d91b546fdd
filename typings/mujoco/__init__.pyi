# MuJoCo's bindings are compiled and ship no types; without this, every name in them is an error to pyright.
from typing import Any

def __getattr__(name: str) -> Any: ...

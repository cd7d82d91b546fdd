# PyTorch is an optional extra: without it, `import torch` in ukemi/torch.py would resolve to that very file.
from typing import Any

def __getattr__(name: str) -> Any: ...

"""Activation checkpointing by policy: what the gate tests is what training scripts import.

```python
from acgate.checkpointing import apply_policy

apply_policy(model, "selective", policy, blocks)  # the fall-back is the word "block"
```
"""

from acgate.checkpointing.apply import Applied, apply_policy
from acgate.checkpointing.chain import Chain, prove_chain
from acgate.checkpointing.coverage import covered_blocks
from acgate.checkpointing.lint import LintFinding, lint_policy
from acgate.checkpointing.operators import (
    PacketError,
    Resolved,
    communicates,
    is_random,
    may_draw,
    mutates,
    operator_name,
    resolve,
)
from acgate.checkpointing.selective import ContextFn, selective_context_fn

__all__ = [
    "Applied",
    "Chain",
    "ContextFn",
    "LintFinding",
    "PacketError",
    "Resolved",
    "apply_policy",
    "communicates",
    "covered_blocks",
    "is_random",
    "lint_policy",
    "may_draw",
    "mutates",
    "operator_name",
    "prove_chain",
    "resolve",
    "selective_context_fn",
]

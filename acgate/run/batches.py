"""The digest of a batch, by which tracks prove that they saw the same data."""

from __future__ import annotations

import hashlib

from acgate.observe.content_hash import content_hash
from acgate.targets.batch import named_tensors


def batch_digest(batch: object) -> str:
    """Digest the names, shapes, dtypes and contents of a batch's tensors."""
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in named_tensors(batch):
        line = f"{name} {tuple(tensor.shape)} {tensor.dtype} {content_hash(tensor)}\n"
        digest.update(line.encode())
    return digest.hexdigest()

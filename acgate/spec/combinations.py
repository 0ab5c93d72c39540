"""Settings that are right one by one, and contradict each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from acgate.errors import UsageError
from acgate.spec.explain import place_of
from acgate.spec.models import Topology

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from acgate.spec.models import GateSpec

ONE_RANK: Topology = "single"
_MIXED = "bfloat16.mixed"
_FSDP = tuple(name for name in get_args(Topology) if "fsdp" in name)


def contradictions(spec: GateSpec, origin: Mapping[str, str], section: str = "") -> Iterator[str]:
    """Yield what settings say against each other, as far as that is known without a plan or a model.

    Args:
        spec: What was asked, valid setting by setting.
        origin: Where each setting came from. A file may serve several runs, so a setting in it that
            has no effect in this one is no mistake; an option is meant for this run.
        section: Of the file, such as `tool.acgate`.
    """
    if not _several_ranks(spec):
        for name in ("world_size", "reference_layers"):
            if origin.get(name, "").startswith("--"):
                yield (
                    f"{origin[name]}: has no effect where the only topology is {ONE_RANK}, which is one rank;"
                    " leave it out, or add others: --topologies ddp,fsdp"
                )
    if _MIXED in spec.dtypes and not set(spec.topologies) & set(_FSDP):
        source = origin.get("dtypes", "")
        place = source if source.startswith("--") else f"{source}: {place_of(('dtypes',), section)}"
        yield (
            f"{place}: {_MIXED} is the mixed precision of FSDP itself, and none of the topologies"
            f" ({', '.join(spec.topologies)}) is FSDP; add fsdp, or use bfloat16, which is autocast"
        )


def check_in_process(spec: GateSpec) -> None:
    """See that a run inside this process needs one rank only.

    Raises:
        UsageError: It needs several.
    """
    if _several_ranks(spec):
        others = [name for name in spec.topologies if name != ONE_RANK]
        raise UsageError(
            f"--in-process runs one rank, and {', '.join(others)} {'need' if others[1:] else 'needs'}"
            f" several; leave it out, or use --topologies {ONE_RANK}"
        )


def _several_ranks(spec: GateSpec) -> bool:
    return any(name != ONE_RANK for name in spec.topologies)

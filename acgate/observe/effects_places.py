"""Which line changed something, and which reads it, as far as what functions store and load tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.evidence.trace_records import Moved
from acgate.observe.call_origin import line_text
from acgate.observe.effects_names import ABSENT, SETTING, functions_of, uses, words_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping
    from types import CodeType, ModuleType

    from acgate.evidence.trace_records import Effect, EffectKind

MAX_MOVED = 20
"""So many things that were changed between are told of a region."""

_OF_MODULES = frozenset({"buffer", "parameter", "attribute", "generator"})
_NAMED = frozenset({"attribute", "global", "function", "hook", "buffer", "setting"})
_MAKING = frozenset({"__init__", "__post_init__", "__new__", "<module>"})  # long before any forward
_LINES = 4


def placed(effects: Iterable[Effect], called: Mapping[CodeType, set[str]]) -> Iterator[Effect]:
    """Yield the effects with the module that has the name, and the line that probably changed it.

    Args:
        effects: What was found changed.
        called: Functions of the target that ran, each with the modules whose methods they are.
    """
    for effect in effects:
        owner = _owner(effect.kind, effect.name)
        source = ""
        if effect.kind in _NAMED:
            words = words_of(effect.kind, effect.name)
            lines = _lines(words, effect.name if owner else "", called, effect.detail)
            source = next(iter(lines), "")
        yield effect.model_copy(update={"module": owner, "source": source})


def moved(
    effects: Iterable[Effect],
    texts: Mapping[str, tuple[str, str]],
    called: Mapping[CodeType, set[str]],
    namespaces: Iterable[ModuleType],
    by_forward: Container[str] = (),
) -> list[Moved]:
    """Return what was changed between a forward and its replay, with the lines that read and store it.

    What no function of the replay names cannot have made a difference, and is left out. Settings are
    no names, and arguments have other names inside: they are told whatever the code names.

    Args:
        effects: What is otherwise.
        texts: What each was, and is.
        called: Functions of the target that the replay called.
        namespaces: Modules of the target's own code.
        by_forward: Names of what the forward had changed already when it was over.
    """
    effects = tuple(effects)
    near = {_key(effect) for effect in effects if not _apart(effect, called)}
    others = {code: set[str]() for code in functions_of(namespaces) if code not in called}
    found: list[Moved] = []
    for effect in effects:
        if _apart(effect, called) and _key(effect) in near:
            continue  # another module's, where the region's own was changed as well
        before, after = texts.get(effect.name, ("", ""))
        if effect.kind == "argument":
            found.append(Moved(kind=effect.kind, name=effect.name, before=before, after=after))
            continue
        words, own_code = words_of(effect.kind, effect.name), _of_module(effect)
        read = _lines(words, own_code, called, stores=False)
        if not read and effect.kind != "setting":
            continue
        stores = None if effect.name.startswith(SETTING) else True  # to name a switch is to set it
        inside = _lines(words, own_code, called, after, stores=stores)
        outside = _lines(words, "", others, after, stores=stores)
        own = effect.name in by_forward
        found.append(
            Moved(
                kind=effect.kind,
                name=effect.name,
                module=_owner(effect.kind, effect.name),
                before=before,
                after=after,
                read_at=tuple(read[:_LINES]),
                stored_at=tuple([*inside, *outside] if own else [*outside, *inside])[:_LINES],
                by_forward=own,
            )
        )
    return found[:MAX_MOVED]


def _key(effect: Effect) -> tuple[str, str]:
    return effect.kind, effect.name.rpartition(".")[2]


def _of_module(effect: Effect) -> str:
    return effect.name if _owner(effect.kind, effect.name) else ""


def _apart(effect: Effect, called: Mapping[CodeType, set[str]]) -> bool:
    """Say whether none of the functions that name an attribute ran on its module, or on one around it."""
    name = _of_module(effect)
    word = next(iter(words_of(effect.kind, effect.name)), "")
    owners = [owner for code, owners in called.items() if word in uses(code) for owner in owners]
    return bool(name and owners) and not any(_belongs(name, owner) for owner in owners)


def _owner(kind: EffectKind, name: str) -> str:
    owner = name.rpartition(".")[0] if kind in _OF_MODULES else ""
    return "" if owner.startswith("global ") else owner


def _lines(
    words: Iterable[str],
    name: str,
    called: Mapping[CodeType, set[str]],
    after: str = "",
    *,
    stores: bool | None = None,
) -> list[str]:
    """Return the lines that name something, the likeliest first; only those that store, or only reads.

    Lines of the module that has it come first; of lines that store, one with a constant that is in
    `after`. Where the first word stands nowhere, the next may, as for what an object holds.

    Args:
        words: What code may call it by.
        name: Of the attribute, where its module's own code comes first; else empty.
        called: Where to look.
        after: What it was changed to.
        stores: None for both, those that store first.
    """
    for word in words:
        ranked = []
        for code, owners in called.items():
            apart = bool(name) and not any(_belongs(name, module) for module in owners)
            for use in uses(code).get(word, ()):
                if stores is True and (not use.stores or code.co_name in _MAKING):
                    continue
                likely = (
                    use.deletes if after == ABSENT else any(_is_in(text, after) for text in use.constants)
                )
                ranked.append(((not use.stores, apart, not likely), line_text(code, use.line)))
        if ranked:
            if stores is False:  # a line may read and store, as in `count += 1`
                ranked = [((False, rank[1], False), text) for rank, text in ranked]
            ranked.sort(key=lambda pair: pair[0])
            return list(dict.fromkeys(text for _, text in ranked))
    return []


def _is_in(constant: str, after: str) -> bool:
    """Say whether a constant is what something was changed to; None and flags are on too many lines."""
    if constant.isidentifier():
        return after.endswith(f".{constant}")
    return len(constant) > 1 and constant not in {"None", "True", "False"} and constant in after


def _belongs(name: str, module: str) -> bool:
    return not module or name.startswith(f"{module}.")

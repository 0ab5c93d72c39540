"""Loads the corpus and puts one fixture through the gate; runs in worker processes, where torch is."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acgate.report.files import described
from acgate.selftest.grade import grade
from acgate.selftest.results import REGIONLESS, Fixture, Group, Outcome, Result, Turn

if TYPE_CHECKING:
    from acgate.judge.verdict import Verdict

PACKAGE = "fixtures"


def copied(source: Path, folder: Path) -> Path:
    """Copy the corpus into a folder of this run and return where it lies.

    Fixtures import each other as `fixtures`; in the copy that is a package, so that an installed one
    of the same name cannot take its place. Nor does a fixture see or change what is installed.
    """
    root = folder / PACKAGE
    shutil.copytree(source, root, ignore=shutil.ignore_patterns("__pycache__", "evidence"))
    (root / "__init__.py").touch()
    return root


def fixtures(root: Path, groups: tuple[Group, ...]) -> tuple[list[Fixture], dict[str, str]]:
    """Return the fixtures of some groups, in order, and the versions of what they run on."""
    torch = importlib.metadata.version("torch")
    _importable(root)
    found = []
    for group in groups:
        for path in sorted((root / group).glob("*.py")):
            expect = _load(path).EXPECT
            found.append(
                Fixture(
                    name=f"{group}/{path.stem}",
                    group=group,
                    kind=expect.kind,
                    cause=expect.cause[0] if expect.cause else REGIONLESS,
                    precisions=expect.precisions,
                    slow=expect.slow,
                    lacks=_lacks(expect, torch),
                )
            )
    return found, {"torch": torch}


def judged(root: Path, turn: Turn) -> Outcome:
    """Put one fixture through the gate and say whether the verdict is the promised one."""
    _importable(root)
    path = root / f"{turn.fixture.name}.py"
    started = time.monotonic()
    try:
        expect = _load(path).EXPECT
        with tempfile.TemporaryDirectory(prefix="acgate-selftest-") as folder:
            verdict = _verdict(path, expect, turn, Path(folder) / "run")
    except Exception as error:  # noqa: BLE001 - the other fixtures are run all the same
        code, message = described(error)
        told = f"exit code {int(code)}: {message}"
        return Outcome(turn, Result.NOT_RUN, told, seconds=time.monotonic() - started)
    return grade(turn, expect, verdict, path.read_text(encoding="utf-8"), time.monotonic() - started)


def _verdict(path: Path, expect: Any, turn: Turn, out: Path) -> Verdict:
    from acgate import gate  # noqa: PLC0415 - brings in the engine
    from acgate.spec.models import Allow, GateSpec, Parallel  # noqa: PLC0415

    # What is right and only suspicious by its kind passes once it is allowed by name.
    allowed = expect.findings if expect.exit_code_allowed is not None else ()
    spec = GateSpec(
        model=str(path),
        tracks=("none", *expect.tracks_in(turn.precision)),
        topologies=expect.topologies,
        world_size=expect.world_size,
        parallel=Parallel(**expect.parallel),
        dtypes=(turn.precision,),
        micro_steps=expect.micro_steps,
        threads=1,
        allow=tuple(Allow(kind=kind, reason="this fixture uses it rightly") for kind in allowed),
    )
    alone = expect.topologies == ("single",)
    return gate.run(spec, out, resume=False, in_process=alone, listeners=())


def _importable(root: Path) -> None:
    """Let this process and those that it starts import the copied corpus as `fixtures`."""
    folder = str(root.parent)
    if sys.path[0] != folder:
        sys.path.insert(0, folder)
        known = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *([known] if known else [])])


def _load(path: Path) -> Any:
    return importlib.import_module(f"{PACKAGE}.catalog").load(path)


def _lacks(expect: Any, version: str) -> str:
    """Say why a fixture's promise does not hold here."""
    if tuple(int(part) for part in version.split(".")[:2]) < expect.since:
        return f"says something from torch {expect.since[0]}.{expect.since[1]} on"
    missing = [name for name in expect.needs if importlib.util.find_spec(name) is None]
    return f"needs {', '.join(missing)}, which is not installed" if missing else ""

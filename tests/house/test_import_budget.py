from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "numpy", "transformers", "safetensors", "pydantic", "rich", "junit_xml", "hypothesis")
PURE = (
    "acgate.spec.loading",
    "acgate.spec.resources",
    "acgate.plan.matrix",
    "acgate.evidence.store",
    "acgate.report.files",
    "acgate.report.json_document",
    "acgate.report.junit",
    "acgate.report.plan_text",
    "acgate.report.summary",
    "acgate.report.terminal",
)


def loaded_after(code: str) -> set[str]:
    """Return which of the heavy packages a fresh process has imported after `code`."""
    probe = f"import sys\n{code}\nsys.stderr.write(' '.join(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", probe],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(done.stderr.split())


@pytest.mark.parametrize(("arguments", "allowed"), [(["--help"], set()), (["run", "--help"], {"pydantic"})])
def test_help_imports_nothing_heavy(arguments: list[str], allowed: set[str]) -> None:
    """Help comes at once; that of a command may cost pydantic, which newer parsers use themselves."""
    assert loaded_after(f"from acgate.__main__ import main\nmain({arguments!r})") <= allowed


def test_the_pure_half_needs_no_torch() -> None:
    """Settings, plans, evidence and reports are read and written without torch or numpy."""
    found = loaded_after("".join(f"import {name}\n" for name in PURE))
    assert found <= {"pydantic", "junit_xml"}


def test_the_probe_sees_an_import() -> None:
    """A budget that cannot be exceeded would hold nothing."""
    assert "numpy" in loaded_after("import numpy")

"""Judging stored evidence in a process of its own, which shows whether that needs torch."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def judged_apart(out: Path) -> list[str]:
    """Judge a run directory again; return exit code, number of comparisons, and whether torch was imported."""
    code = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        from acgate import gate
        verdict = gate.judge(Path({str(out)!r}), tolerances=None)
        print(int(verdict.exit_code), sum(cell.compared for cell in verdict.cells), "torch" in sys.modules)
    """)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT)},
    )
    return done.stdout.split()

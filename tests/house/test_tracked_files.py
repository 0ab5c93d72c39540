"""What is in the repository works on any machine: no paths, no hosts of somebody's own."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Written in two parts each, so that this file does not find itself.
FORBIDDEN = {
    "a path of one machine": re.compile("|".join([r"/wo" + r"rk/", r"/ho" + r"me/\w", r"/Use" + r"rs/\w", r"/ro" + r"ot/"])),
    "a folder outside the repository": re.compile(r"\.\./sha" + r"red\b"),
    "a folder for throw-away files": re.compile(r"/tm" + r"p/\w"),
    "a package index": re.compile(r"index" + r"-url|find" + r"-links|/sim" + r"ple/"),
}  # fmt: skip


def tracked() -> list[Path]:
    """The files under version control; all but hidden ones where there is no git (an unpacked sdist)."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        files = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
        return [path for path in files if not any(part.startswith(".") for part in path.parts)]
    return [Path(name) for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_tracked_file_mentions(what):
    """No file under version control mentions what exists on one machine only."""
    found = []
    for path in tracked():
        text = (ROOT / path).read_text(encoding="utf-8", errors="replace")
        found += [
            f"{path}:{number}: {line.strip()}"
            for number, line in enumerate(text.splitlines(), 1)
            if FORBIDDEN[what].search(line)
        ]
    assert not found, f"{what} is mentioned:\n" + "\n".join(found)


def test_the_test_command_of_the_readme_is_what_ci_runs():
    """`.ci/run` takes the command from the README, and the README has exactly one."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert readme.count("\n<!-- test command -->\n```bash\n") == 1
    function = script[script.index("test_command() {") : script.index('section "Python"')]
    printed = subprocess.run(
        ["bash", "-c", f"{function}\ntest_command"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert printed in readme
    assert printed.rstrip().endswith("python -m pytest")

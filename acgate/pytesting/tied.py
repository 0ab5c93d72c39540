"""Entry of the engine: acgate as on the command line, tied to the life of the pytest that started it.

Called as `python -m acgate.pytesting.tied PARENT_PID ARGUMENTS…`.
"""

from __future__ import annotations

import runpy
import sys

from acgate.run.parent_death import die_with_parent


def main(arguments: list[str]) -> None:
    """Run acgate with the arguments that follow the process id of the parent."""
    die_with_parent(int(arguments[0]))
    sys.argv[1:] = arguments[1:]
    runpy.run_module("acgate", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])

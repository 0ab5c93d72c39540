"""Answers as acgate would, from `stub.json` in its directory, and notes what it was asked."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path


def main(parent: int, arguments: list[str]) -> int:
    given = dict(
        argument.split("=", 1) for argument in arguments if argument.startswith("--") and "=" in argument
    )
    cell = given.get("--select", "")
    with Path("calls.log").open("a") as log:
        log.write(
            json.dumps(
                {"pid": os.getpid(), "arguments": arguments, "pythonpath": os.environ.get("PYTHONPATH", "")}
            )
            + "\n"
        )
    told = json.loads(Path("stub.json").read_text())
    answer = told["plan"] if arguments[0] == "plan" else told["cells"][cell]
    print(answer.get("says", f"[1] {cell}"), flush=True)
    if answer.get("kills_parent"):
        os.kill(parent, signal.SIGKILL)
    if answer.get("sleeps"):
        time.sleep(answer["sleeps"])
    if answer.get("kills_itself"):
        os.kill(os.getpid(), signal.SIGKILL)
    if answer.get("document") is not None:
        Path(given["--json"]).write_text(json.dumps(answer["document"]))
    return answer["code"]


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))

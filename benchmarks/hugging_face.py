"""Put a tiny model of every architecture of transformers before the gate, and count the verdicts.

`python benchmarks/hugging_face.py` runs everything, and goes on where it was interrupted; `-k WORDS` selects,
`--report` only prints the table of what is done.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
AT_LEAST = 100
"""A sweep over fewer architectures shows little."""
MOST_UNCHECKED = 0.15
PRELOADED = (
    "benchmarks.hugging_face_judging",
    "acgate.run.perform",
    "torch._dynamo",
    "transformers.models.llama.modeling_llama",
)
"""Half the time of a run would go into what these import, whatever the architecture."""
OUTCOMES = {"passed": "passed", "failed": "failed", "error": "could not be checked", "skipped": "skipped"}
Row = dict[str, Any]


def main() -> int:
    """Run what is asked for, print the table; 1 where a fail was not examined or too little was checked."""
    options = _options()
    sys.path.insert(0, str(ROOT))
    from benchmarks import hugging_face_judging as judging
    from benchmarks import sweep_rows

    known = judging.load_known()
    words = options.keyword.split()
    chosen = [
        arch for arch in judging.architectures() if all(word in f"{arch.name} {arch.head}" for word in words)
    ]
    if not chosen:
        print(f"nothing matches {options.keyword!r}")
        return 2
    done = sweep_rows.read(options.results)
    todo = [arch for arch in chosen if arch.name not in done]
    print(f"{len(chosen)} architectures, {len(chosen) - len(todo)} of them done in {options.results}")
    if not options.report and todo:
        _run(todo, known, options, done)
    rows = [done[arch.name] for arch in chosen if arch.name in done]
    return _print_tables(rows, known, left=len(chosen) - len(rows), everything=not words)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "-k",
        dest="keyword",
        default="",
        help="only architectures whose type or class contains all these words",
    )
    parser.add_argument("--jobs", type=int, default=2, help="architectures at the same time")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that one architecture may take")
    parser.add_argument(
        "--steps", type=int, default=3, help="optimizer steps; some faults begin at the second"
    )
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument(
        "--results", type=Path, default=Path("hugging_face.jsonl"), help="a line for each architecture done"
    )
    parser.add_argument("--report", action="store_true", help="run nothing")
    return parser.parse_args()


def _run(todo: list[Any], known: Any, options: argparse.Namespace, done: dict[str, Row]) -> None:
    from benchmarks import sweep_rows

    # A server that has imported everything once and forks: each architecture has a process of its own, which
    # may crash, hang or leave things behind, and none of them waits for the imports.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    sweep_rows.take(_judged(todo, known, options, context), len(todo), options.results, done, _in_short)


def _judged(todo: list[Any], known: Any, options: argparse.Namespace, context: Any) -> Iterator[Row]:
    with ThreadPoolExecutor(options.jobs) as threads:
        futures = [threads.submit(_one, context, arch, known, options) for arch in todo]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _one(context: Any, arch: Any, known: Any, options: argparse.Namespace) -> Row:
    """Judge one architecture in a process of its own, which is ended where it takes too long."""
    if arch.name in known.skipped:
        return _row(arch, "skipped", known.skipped[arch.name])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(
        target=_judge, args=(sender, arch, known, options.precision, options.steps), daemon=True
    )
    process.start()
    sender.close()
    try:
        if not receiver.poll(options.limit):
            return _row(arch, "error", f"took longer than {options.limit:.0f} s", options.limit)
        row: Row = receiver.recv()
    except EOFError:
        process.join()
        return _row(arch, "error", f"its process ended with code {process.exitcode}")
    finally:
        process.kill()
        process.join()
        receiver.close()
    return row


def _judge(sender: Any, arch: Any, known: Any, precision: str, steps: int) -> None:
    import torch

    from benchmarks import hugging_face_judging

    torch.set_num_threads(1)
    sender.send(hugging_face_judging.judge(arch, known, precision, steps).as_dict())


def _row(arch: Any, outcome: str, reason: str, seconds: float = 0.0) -> Row:
    from benchmarks.hugging_face_judging import Result

    return Result(arch.name, arch.head, outcome, reason, seconds=seconds).as_dict()


def _in_short(row: Row) -> str:
    return f"{OUTCOMES[row['outcome']]} {row['reason'][:150]} ({row['seconds']:.0f} s)"


def _print_tables(rows: list[Row], known: Any, *, left: int, everything: bool) -> int:
    versions = sorted({row["transformers"] for row in rows if row["transformers"]})
    print(f"\ntransformers {', '.join(versions)}\n")
    print(f"{'architecture':28s}{'head':44s}{'verdict':22s}{'AC by':14s}{'blocks':>6s}{'seconds':>8s}")
    for row in rows:
        print(
            f"{row['name']:28s}{row['head']:44s}{OUTCOMES[row['outcome']]:22s}{row['applies_ac']:14s}"
            f"{row['blocks']:6d}{row['seconds']:8.0f}"
        )
    by_outcome = {name: [row for row in rows if row["outcome"] == name] for name in OUTCOMES}
    noted = [row for row in by_outcome["passed"] if row["reason"]]
    _print_reasons("Passed, with a note", [(row, row["reason"]) for row in noted])
    _print_reasons(
        "Failed",
        [
            (row, known.examined.get(row["name"], f"NOT EXAMINED: {row['reason']}"))
            for row in by_outcome["failed"]
        ],
    )
    for name in ("error", "skipped"):
        _print_reasons(OUTCOMES[name].capitalize(), [(row, row["reason"]) for row in by_outcome[name]])
    escaped = _print_bare(rows)
    return int(_print_sums(by_outcome, known, left=left, everything=everything) or escaped)


def _print_reasons(title: str, rows: list[tuple[Row, str]]) -> None:
    if rows:
        print(f"\n{title}:")
    for row, reason in rows:
        print(f"  {row['name']}: {reason[:600]}")


def _print_bare(rows: list[Row]) -> bool:
    """Set the verdicts beside a bare training loop; return whether a difference escaped the gate."""
    compared = [row for row in rows if row.get("bare")]
    noisy = [row["name"] for row in compared if row["bare"]["again"]]
    escaped = [row for row in compared if row["escaped"]]
    differing = sum(
        any(row["bare"][track] for track in row["tracks"]) for row in compared if not row["bare"]["again"]
    )
    print(
        f"\nBare training loop: {differing} of {len(compared)} differ under AC, {len(escaped)} of them"
        f" passed the gate; {len(noisy)} do not repeat themselves{': ' if noisy else ''}{', '.join(noisy)}"
    )
    _print_reasons("ESCAPED", [(row, str(row["bare"])) for row in escaped])
    return bool(escaped)


def _print_sums(by_outcome: dict[str, list[Row]], known: Any, *, left: int, everything: bool) -> int:
    rows = [row for own in by_outcome.values() for row in own]
    unchecked = len(by_outcome["error"]) + len(by_outcome["skipped"])
    unexamined = [row["name"] for row in by_outcome["failed"] if row["name"] not in known.examined]
    share = unchecked / len(rows) if rows else 1.0
    print(f"\n{'tried':24s}{len(rows):6d}")
    for name, told in OUTCOMES.items():
        own = sum(row["applies_ac"] == "hugging-face" for row in by_outcome[name])
        switched = f"  ({own} with the library's own switch)" if name in ("passed", "failed") else ""
        print(f"{told:24s}{len(by_outcome[name]):6d}{switched}")
    switches = Counter(row["applies_ac"] for row in rows if row["applies_ac"])
    print(f"AC applied by            {', '.join(f'{who} {count}' for who, count in switches.most_common())}")
    print(f"not checked or skipped   {share:.1%} of those tried (at most {MOST_UNCHECKED:.0%})")
    if unexamined:
        print(f"failed and not examined: {', '.join(unexamined)}")
    if left:
        print(f"{left} architectures are still to be done")
    too_little = everything and (len(rows) < AT_LEAST or share > MOST_UNCHECKED)
    return int(bool(left) or bool(unexamined) or too_little)


if __name__ == "__main__":
    raise SystemExit(main())

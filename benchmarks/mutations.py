"""Plant faults in six models, put each before the gate, and count what escapes; the same with clean models.

`python benchmarks/mutations.py` runs everything, and goes on where it was interrupted; `-k PATTERN` selects,
`--report` only prints the tables of the runs that are done.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import multiprocessing
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
TASKS_PER_WORKER = 40
"""A worker is replaced after so many, because faults leave things behind in a process."""
Row = dict[str, Any]


def main() -> int:
    """Run what is asked for and print the tables; 1 where something escaped or is wrong otherwise."""
    options = _options()
    sys.path.insert(0, str(ROOT))
    from benchmarks import sweep_rows

    units = _selected(options)
    if not units:
        print(f"nothing matches {options.keyword!r}")
        return 2
    done = sweep_rows.read(options.results)
    # In an order that has nothing to do with kinds, so that what was done so far is a fair sample.
    todo = sorted((unit for unit in units if unit.name not in done), key=lambda unit: _digest(unit.name))
    print(f"{len(units)} runs, {len(units) - len(todo)} of them done in {options.results}")
    if not options.report and todo:
        _run(todo, options, done)
    rows = [done[unit.name] for unit in units if unit.name in done]
    _print_tables(rows)
    left = len(units) - len(rows)
    if left:
        print(f"\n{left} of {len(units)} runs are still to be done")
    return int(bool(left) or any(row["problem"] for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "-k", dest="keyword", default="", help="only runs whose name contains all these words"
    )
    parser.add_argument("--only", choices=("mutants", "clean"), help="leave the other half out")
    parser.add_argument(
        "--quick", action="store_true", help="each mutant once, by turns over architectures and precisions"
    )
    parser.add_argument("--clean", type=int, default=300, help="number of clean runs")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes")
    parser.add_argument(
        "--results", type=Path, default=Path("mutations.jsonl"), help="a line for each run done"
    )
    parser.add_argument("--report", action="store_true", help="run nothing")
    return parser.parse_args()


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _selected(options: argparse.Namespace) -> list[Any]:
    from fixtures.mutations import judging

    units = [] if options.only == "clean" else list(judging.mutant_units(by_turns=options.quick))
    units += [] if options.only == "mutants" else judging.clean_units(options.clean)
    words = options.keyword.split()
    return [unit for unit in units if all(word in unit.name for word in words)]


def _run(todo: list[Any], options: argparse.Namespace, done: dict[str, Row]) -> None:
    from benchmarks import sweep_rows

    batch = TASKS_PER_WORKER * options.jobs
    # New workers come with a new pool: those that a pool replaces can wait for each other for ever.
    pools = (_rows(todo[start : start + batch], options.jobs) for start in range(0, len(todo), batch))
    sweep_rows.take(itertools.chain.from_iterable(pools), len(todo), options.results, done, _in_short)


def _rows(units: list[Any], jobs: int) -> Iterator[Row]:
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_prepare)
    with pool:
        futures = [pool.submit(_judge, unit) for unit in units]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _prepare() -> None:
    sys.path.insert(0, str(ROOT))
    import torch

    torch.set_num_threads(1)
    try:
        import transformers
    except ImportError:
        return
    transformers.logging.set_verbosity_error()


def _judge(unit: Any) -> Row:
    from fixtures.mutations import judging

    return judging.judge(unit).as_dict()


def _in_short(row: Row) -> str:
    if row["problem"]:
        return f"PROBLEM {row['problem']}"
    parts = [
        f"{name} {track['outcome']}"
        + (
            f" ({track['cause'] or 'no cause'}{'' if track['cause_right'] else ', unexpected'})"
            if track["changed"]
            else ""
        )
        for name, track in row["tracks"].items()
    ]
    return f"{', '.join(parts)}, {row['seconds']:.0f} s"


def _print_tables(rows: list[Row]) -> None:
    mutants = [row for row in rows if row["kind"]]
    clean = [row for row in rows if not row["kind"] and ".clean-" in row["name"]]
    lost = [row for row in rows if not row["kind"] and ".clean-" not in row["name"]]
    if mutants:
        _print_kinds(mutants)
        _print_architectures(mutants)
        _print_equivalent(mutants)
        _print_causes(mutants)
        _print_beside(mutants)
    if clean:
        flagged = [row for row in clean if row["problem"]]
        print(f"\nClean: {len(clean)} runs, {len(flagged)} with a finding")
    problems = [row for row in (*mutants, *clean, *lost) if row["problem"]]
    if problems:
        print(f"\nProblems ({sum(row['escaped'] for row in rows)} escaped):")
        for row in problems:
            print(f"  {row['name']}: {row['problem']}")


def _faults(rows: list[Row]) -> list[tuple[Row, str, Row]]:
    """Return the tracks whose numbers changed: row, name of the track, track."""
    return [(row, name, track) for row in rows for name, track in row["tracks"].items() if track["changed"]]


def _caught(track: Row) -> bool:
    return track["outcome"] in ("fail", "error")


def _line(label: str, rows: list[Row]) -> str:
    faults = _faults(rows)
    named = [track["cause_right"] for _, _, track in faults if track["cause_right"] is not None]
    variants = {(row["kind"], row["variant"]) for row in rows}
    changing = {(row["kind"], row["variant"]) for row, _, _ in faults}
    caught = sum(_caught(track) for _, _, track in faults)
    equal = sum(len(row["tracks"]) for row in rows) - len(faults)
    right = f"{sum(named)}/{len(named)}"
    share = f"{caught}/{len(faults)}"
    return (
        f"{label:24s}{len(variants):10d}{len(changing):10d}{len(rows):7d}{share:>13s}{equal:8d}{right:>14s}"
    )


HEADER = (
    f"{'':24s}{'mutants':>10s}{'changing':>10s}{'runs':>7s}{'caught':>13s}{'equal':>8s}{'cause right':>14s}"
)


def _print_kinds(rows: list[Row]) -> None:
    print("\nBy kind (caught, equal and causes: tracks of runs)\n" + HEADER)
    for kind in sorted({row["kind"] for row in rows}):
        print(_line(kind, [row for row in rows if row["kind"] == kind]))
    print(_line("all", rows))


def _print_architectures(rows: list[Row]) -> None:
    print("\nBy architecture and precision\n" + HEADER)
    for arch, precision in sorted({(row["arch"], row["precision"]) for row in rows}):
        print(
            _line(
                f"{arch} {precision}",
                [row for row in rows if (row["arch"], row["precision"]) == (arch, precision)],
            )
        )


def _print_equivalent(rows: list[Row]) -> None:
    """Print every mutant without effect, everywhere or on some tracks, below its author's reason."""
    by_mutant: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        by_mutant[row["kind"], row["variant"]].append(row)
    reasons: dict[str, list[str]] = defaultdict(list)
    for (kind, variant), own in sorted(by_mutant.items()):
        tracks = [
            (f"{row['arch']} {name} {row['precision']}", track["changed"])
            for row in own
            for name, track in row["tracks"].items()
        ]
        equal = [place for place, changed in tracks if not changed]
        if equal:
            told = (
                "everywhere" if len(equal) == len(tracks) else f"{len(equal)} of {len(tracks)}: {_few(equal)}"
            )
            reasons[own[0]["equivalent"] or "NO REASON GIVEN"].append(f"{kind}.{variant} ({told})")
    print("\nEquivalent: no produced number changes")
    for reason, mutants in reasons.items():
        print(f"  because {reason}:")
        for told in mutants:
            print(f"      {told}")


def _print_causes(rows: list[Row]) -> None:
    wrong: dict[str, list[str]] = defaultdict(list)
    for row, name, track in _faults(rows):
        if track["cause_right"] is False:
            key = f"{row['kind']}.{row['variant']}: {track['cause'] or 'no cause'} [{track['cause_told']}]"
            wrong[key].append(f"{row['arch']} {name} {row['precision']}")
    print(f"\nCauses that the author did not expect: {sum(map(len, wrong.values()))}")
    for key, where in sorted(wrong.items()):
        print(f"  {key}: {_few(where)}")


def _print_beside(rows: list[Row]) -> None:
    beside: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        for name, track in row["tracks"].items():
            if not track["changed"] and track["failed"]:
                key = f"{row['kind']}.{row['variant']}: {', '.join(track['failed'])}"
                beside[key].append(f"{row['arch']} {name} {row['precision']}")
    print(f"\nFlagged although all numbers are equal: {sum(map(len, beside.values()))}")
    for key, where in sorted(beside.items()):
        print(f"  {key}: {_few(where)}")


def _few(places: list[str]) -> str:
    return ", ".join(places[:4]) + (f" and {len(places) - 4} more" if len(places) > 4 else "")


if __name__ == "__main__":
    raise SystemExit(main())

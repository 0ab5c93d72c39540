"""Real ranks for tests: processes that stay, each with torch imported once, and run one function at a time.

A function is handed over by module file and name, runs on the first `world_size` ranks inside a process group of
its own, and returns plain data. Nothing waits for ever: collectives end after `COLLECTIVE` seconds, a call
after its own limit, and a pool that missed it is stopped; the next call starts another.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import queue
import sys
import tempfile
import traceback
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

COLLECTIVE = 20.0
LIMIT = 90.0
_modules: dict[str, Any] = {}


class RankFailedError(AssertionError):
    """A rank raised; the message is its traceback."""


def _load(path: str) -> Any:
    """Import a file once per process under a name of its own: test modules have no importable name."""
    if path not in _modules:
        name = f"rank_{len(_modules)}_{Path(path).stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        _modules[path] = module
    return _modules[path]


def _serve(rank: int, directory: str, jobs: Any, answers: Any, search: list[str]) -> None:
    """Do what comes until None comes; every answer is (call, rank, result, traceback)."""
    sys.path[:0] = [entry for entry in search if entry not in sys.path]
    import torch
    import torch.distributed as dist

    from acgate.topology.process_group import process_group

    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(directory) / "store"), -1)
    while (job := jobs.get()) is not None:
        call, world_size, file, name, arguments = job
        result, failure = None, ""
        try:
            function = getattr(_load(file), name)
            with process_group(
                store,
                rank,
                world_size,
                device="cpu",
                timeout=timedelta(seconds=COLLECTIVE),
                name=f"call{call}",
            ):
                result = function(rank, world_size, *arguments)
        except BaseException:  # noqa: BLE001 - whatever it is, the test is told
            failure = traceback.format_exc()
        answers.put((call, rank, result, failure))


@dataclass
class RankPool:
    """Up to `size` ranks; start it once per session."""

    size: int = 4
    _processes: list[Any] = field(default_factory=list)
    _jobs: list[Any] = field(default_factory=list)
    _answers: Any = None
    _calls: int = 0
    _directory: tempfile.TemporaryDirectory[str] | None = None

    def run(
        self, world_size: int, function: Callable[..., Any], *arguments: Any, limit: float = LIMIT
    ) -> list[Any]:
        """Return what `function(rank, world_size, *arguments)` returned on each rank, by rank.

        Args:
            world_size: Ranks that take part.
            function: At the top of a file; found again by file and name.
            arguments: Plain data.
            limit: Seconds for all of it.

        Raises:
            RankFailedError: A rank raised, died, or did not answer in time.
        """
        results, failures = self.outcomes(world_size, function, *arguments, limit=limit)
        if failures:
            raise RankFailedError("\n".join(f"rank {rank}:\n{text}" for rank, text in failures.items()))
        return [results[rank] for rank in range(world_size)]

    def outcomes(
        self, world_size: int, function: Callable[..., Any], *arguments: Any, limit: float = LIMIT
    ) -> tuple[dict[int, Any], dict[int, str]]:
        """Return results and tracebacks by rank, for tests of what fails."""
        assert world_size <= self.size
        if not self._processes:
            self._start()
        self._calls += 1
        file = function.__code__.co_filename
        for rank in range(world_size):
            self._jobs[rank].put((self._calls, world_size, file, function.__name__, arguments))
        results: dict[int, Any] = {}
        failures: dict[int, str] = {}
        while len(results) + len(failures) < world_size:
            try:
                call, rank, result, failure = self._answers.get(timeout=limit)
            except queue.Empty:
                self.stop()
                missing = [r for r in range(world_size) if r not in results and r not in failures]
                return results, failures | dict.fromkeys(missing, f"no answer within {limit:g} s")
            if call == self._calls:
                (failures if failure else results)[rank] = failure or result
        return results, failures

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._directory = tempfile.TemporaryDirectory(prefix="acgate-ranks-")
        self._answers = context.Queue()
        self._jobs = [context.Queue() for _ in range(self.size)]
        before = os.environ.get("GLOO_SOCKET_IFNAME")
        os.environ["GLOO_SOCKET_IFNAME"] = before or "lo"
        try:
            self._processes = [
                context.Process(
                    target=_serve,
                    args=(rank, self._directory.name, self._jobs[rank], self._answers, sys.path),
                    daemon=True,
                )
                for rank in range(self.size)
            ]
            for process in self._processes:
                process.start()
        finally:
            if before is None:
                del os.environ["GLOO_SOCKET_IFNAME"]

    def stop(self) -> None:
        """End the processes: gently where they listen, else by force."""
        for jobs in self._jobs:
            jobs.put(None)
        for process in self._processes:
            process.join(2)
            if process.is_alive():
                process.kill()
                process.join()
        for channel in (*self._jobs, *([self._answers] if self._answers else [])):
            channel.close()
            channel.join_thread()
        self._processes, self._jobs, self._answers = [], [], None
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

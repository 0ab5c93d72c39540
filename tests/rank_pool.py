"""Real ranks for tests: processes that stay, each with torch imported once, and run one function at a time.

A function is handed over by module file and name, runs on the first `world_size` ranks inside a process group of
its own, and returns plain data. One with the attribute `makes_its_group` gets the store of its call instead. Nothing waits for ever: collectives end after `COLLECTIVE` seconds, a call
after its own limit, and a pool that missed it is stopped; the next call starts another.
"""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import os
import queue
import sys
import traceback
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

COLLECTIVE = 20.0
LIMIT = 90.0
START = 240.0
"""Seconds for importing torch, which a busy machine may need."""
READY = 0
_modules: dict[str, Any] = {}


class RankFailedError(AssertionError):
    """A rank raised; the message is its traceback."""


def _load(module_name: str, path: str) -> Any:
    """Import a file once per process: by its name where that finds it, which most test files have not."""
    if "." not in module_name and module_name != "__main__":
        found = importlib.util.find_spec(module_name)
        if found is not None and found.origin == path:
            return importlib.import_module(module_name)
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


def _serve(rank: int, port: int, jobs: Any, answers: Any, search: list[str]) -> None:
    """Do what comes until None comes; every answer is (call, rank, result, traceback)."""
    sys.path[:0] = [entry for entry in search if entry not in sys.path]
    import torch
    import torch.distributed as dist

    from acgate.topology.process_group import process_group

    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=LIMIT))
    answers.put((READY, rank, None, ""))
    while (job := jobs.get()) is not None:
        call, world_size, (module_name, file, name), arguments = job
        result, failure = None, ""
        try:
            function = getattr(_load(module_name, file), name)
            if getattr(function, "makes_its_group", False):
                own = dist.PrefixStore(f"call{call}", store)
                result = function(rank, world_size, own, *arguments)
                answers.put((call, rank, result, failure))
                continue
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
    _store: Any = None

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
        self._start(world_size)
        self._calls += 1
        place = (function.__module__, function.__code__.co_filename, function.__name__)
        for rank in range(world_size):
            self._jobs[rank].put((self._calls, world_size, place, arguments))
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

    def _start(self, count: int) -> None:
        """Have `count` ranks that are ready; further ones start when they are first needed."""
        new = range(len(self._processes), count)
        if not new:
            return
        import torch.distributed as dist

        context = multiprocessing.get_context("spawn")
        if self._store is None:
            # The port is its own from the start, so that nobody else can get it in between.
            self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            self._answers = context.Queue()
        self._jobs.extend(context.Queue() for _ in new)
        before = os.environ.get("GLOO_SOCKET_IFNAME")
        os.environ["GLOO_SOCKET_IFNAME"] = before or "lo"
        try:
            started = [
                context.Process(
                    target=_serve,
                    args=(rank, self._store.port, self._jobs[rank], self._answers, sys.path),
                    daemon=True,
                )
                for rank in new
            ]
            for process in started:
                process.start()
            self._processes.extend(started)
        finally:
            if before is None:
                del os.environ["GLOO_SOCKET_IFNAME"]
        try:
            for _ in new:
                self._answers.get(timeout=START)
        except queue.Empty:
            self.stop()
            raise RankFailedError(f"ranks were not ready within {START:g} s") from None

    def stop(self) -> None:
        """End the processes: gently where they listen, else by force."""
        for jobs in self._jobs:
            jobs.put(None)
        for process in self._processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
        for channel in (*self._jobs, *([self._answers] if self._answers else [])):
            channel.close()
            channel.join_thread()
        self._processes, self._jobs, self._answers, self._store = [], [], None, None

"""From a dump of all threads, the lines that the target's author can do something about."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import acgate
from acgate.run.stacks import main_frames, target_frames, threads

PACKAGE = Path(acgate.__file__).parent
LIBRARY = Path(sysconfig.get_paths()["stdlib"])

DUMP = f"""Thread 0x00007f0000000001 (most recent call first):
  File "{LIBRARY}/threading.py", line 331 in wait
  File "/srv/models/loader.py", line 7 in poll

Current thread 0x00007f0000000002 (most recent call first):
  File "{LIBRARY}/site-packages/torch/nn/modules/linear.py", line 125 in forward
  File "/opt/models/my model.py", line 88 in <lambda>
  File "{LIBRARY}/site-packages/mymodels/block.py", line 31 in forward
  File "{PACKAGE}/_data/targets/small.py", line 12 in loss
  File "{PACKAGE}/run/step.py", line 40 in step
  File "{PACKAGE}/run/worker.py", line 70 in run_worker
  File "<frozen runpy>", line 88 in _run_code
"""


def test_threads_are_told_apart():
    """Each thread keeps its frames, innermost first."""
    first, second = threads(DUMP)
    assert [frame.function for frame in first] == ["wait", "poll"]
    assert len(second) == 7


def test_only_the_targets_lines_are_shown():
    """Torch, Python and acgate are left out; installed models and the built-in target are not."""
    assert [str(frame) for frame in target_frames(DUMP)] == [
        "/opt/models/my model.py:88 in <lambda>",
        f"{LIBRARY}/site-packages/mymodels/block.py:31 in forward",
        f"{PACKAGE}/_data/targets/small.py:12 in loss",
    ]


def test_a_hang_outside_the_target_is_shown_as_it_is():
    """Where the target has no line, the innermost lines of all are better than none."""
    dump = DUMP.replace("/opt/models/my model.py", f"{LIBRARY}/x.py").replace("_data/", "run/")
    dump = dump.replace("mymodels", "torch")
    assert [frame.function for frame in target_frames(dump, most=2)] == ["forward", "<lambda>"]


def test_an_empty_dump_has_no_frames():
    """A rank that could not answer leaves nothing to show."""
    assert target_frames("") == []


DEVICE_THREAD = f"""Thread 0x00007f0000000001 (most recent call first):
  File "{LIBRARY}/threading.py", line 331 in wait
  File "{LIBRARY}/threading.py", line 1002 in _bootstrap

Thread 0x00007f0000000003 (most recent call first):
  File "/opt/models/mine.py", line 5 in forward
  File "{LIBRARY}/site-packages/torch/utils/checkpoint.py", line 1100 in unpack_hook

Current thread 0x00007f0000000002 (most recent call first):
  File "{LIBRARY}/site-packages/torch/autograd/graph.py", line 800 in _engine_run_backward
  File "{PACKAGE}/run/worker.py", line 70 in run_worker
"""


def test_a_replay_on_a_devices_thread_belongs_to_the_backward_that_waits_for_it():
    """On an accelerator autograd replays regions on a thread of its own; that is where the target hangs."""
    assert [frame.function for frame in main_frames(DEVICE_THREAD)][:3] == [
        "forward",
        "unpack_hook",
        "_engine_run_backward",
    ]
    assert [str(frame) for frame in target_frames(DEVICE_THREAD)] == ["/opt/models/mine.py:5 in forward"]


def test_a_hook_on_a_devices_thread_has_no_line_of_torch():
    """Autograd calls a hook of the target straight from C++; threads that Python started are other threads."""
    dump = DEVICE_THREAD.replace(
        f'  File "{LIBRARY}/site-packages/torch/utils/checkpoint.py", line 1100 in unpack_hook\n', ""
    )
    assert [frame.function for frame in main_frames(dump)][:2] == ["forward", "_engine_run_backward"]


def test_a_dump_that_ends_before_the_main_thread_says_nothing_of_it():
    """Threads come before it, and theirs are not taken for its frames; a stack too deep to end is its own."""
    torn = DEVICE_THREAD[: DEVICE_THREAD.index("Current thread")]
    assert main_frames(torn) == []
    deep = DUMP[: DUMP.index(f'  File "{PACKAGE}/run/step.py"')] + "  ...\n"
    assert [frame.function for frame in main_frames(deep)][:2] == ["forward", "<lambda>"]


def test_a_folder_called_torch_is_not_torch():
    """A target's own lines count wherever they lie."""
    dump = DUMP.replace("/opt/models/", "/opt/torch/models/")
    assert str(target_frames(dump)[0]) == "/opt/torch/models/my model.py:88 in <lambda>"

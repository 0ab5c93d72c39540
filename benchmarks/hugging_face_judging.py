"""One architecture of transformers: a tiny configuration in a directory, put before the gate."""

from __future__ import annotations

import json
import tempfile
import time
import tomllib
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acgate import gate
from acgate.errors import AcgateError
from acgate.evidence.run_directory import RunDirectory
from acgate.spec.models import GateSpec
from acgate.vocabulary import Outcome
from benchmarks import hugging_face_bare as bare
from benchmarks.tiny_configurations import merged, shrink

if TYPE_CHECKING:
    from acgate.judge.verdict import Case, TrackVerdict, Verdict

KNOWN = Path(__file__).with_suffix(".toml").with_stem("hugging_face")
SEED = 20_240_229
HEADS = (
    "SEQ_TO_SEQ_CAUSAL_LM",
    "SPEECH_SEQ_2_SEQ",
    "CTC",
    "MASKED_LM",
    "IMAGE_CLASSIFICATION",
    "CAUSAL_LM",
)
"""Of several heads the first is taken; BERT has one for causal language models too."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model type of transformers with the head that it is trained with here."""

    name: str
    head: str
    mapping: str


@dataclass(frozen=True, slots=True)
class Known:
    """What people know about single architectures: see `hugging_face.toml`."""

    changes: dict[str, dict[str, Any]]
    skipped: dict[str, str]
    examined: dict[str, str]


@dataclass(slots=True)
class Result:
    """What became of an architecture.

    Attributes:
        outcome: `passed`, `failed`, `error` (it could not be checked) or `skipped`.
        reason: Why, in a line; for `passed` what was noted beside.
        tracks: Outcome of each AC track.
        applies_ac: `hugging-face` where the model's own switch did it, else `acgate`.
        flagged: Checks and findings that are not a plain pass, by track.
        causes: Kind and place of what the gate says is the cause.
        bare: How a bare training loop without acgate differs under AC, by track; `again` is a repeat without.
        escaped: The gate passed a track on which the bare loop differs.
    """

    name: str
    head: str
    outcome: str = "error"
    reason: str = ""
    tracks: dict[str, str] = field(default_factory=dict)
    applies_ac: str = ""
    blocks: int = 0
    parameters: int = 0
    compared: int = 0
    flagged: list[str] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)
    text: str = ""
    bare: dict[str, str] = field(default_factory=dict)
    escaped: bool = False
    seconds: float = 0.0
    transformers: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def architectures() -> list[Architecture]:
    """Return every model type of the installed transformers that has one of the heads, by name."""
    from transformers.models.auto import modeling_auto

    found: dict[str, Architecture] = {}
    for mapping in HEADS:
        for name, heads in getattr(modeling_auto, f"MODEL_FOR_{mapping}_MAPPING_NAMES").items():
            head = heads if isinstance(heads, str) else heads[0]
            found.setdefault(name, Architecture(name, head, mapping))
    return [found[name] for name in sorted(found)]


def load_known(path: Path = KNOWN) -> Known:
    """Read what is known about single architectures."""
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    return Known(raw.get("changes", {}), raw.get("skipped", {}), raw.get("examined", {}))


def write_directory(arch: Architecture, known: Known, directory: Path) -> None:
    """Write a `config.json` with the tiny configuration of this architecture, as a checkpoint has one."""
    from transformers import CONFIG_MAPPING

    changes = dict(known.changes.get(arch.name, {}))
    arguments = changes.pop("arguments", {})
    config = merged(shrink(CONFIG_MAPPING[arch.name](**arguments).to_dict()), changes)
    config |= {"model_type": arch.name, "architectures": [arch.head]}
    (directory / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


def judge(arch: Architecture, known: Known, precision: str = "float32", steps: int = 3) -> Result:
    """Put an architecture before the gate; nothing is raised."""
    import transformers

    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    started = time.monotonic()
    result = Result(arch.name, arch.head, transformers=transformers.__version__)
    try:
        with tempfile.TemporaryDirectory(prefix="hugging-face-") as folder:
            directory = Path(folder) / arch.name
            directory.mkdir()
            write_directory(arch, known, directory)
            _run_gate(directory, precision, steps, result)
    except AcgateError as error:
        result.reason = f"exit {int(error.exit_code)}: {error}"
    except Exception as error:  # noqa: BLE001 - the other architectures are judged all the same
        result.reason = f"{type(error).__name__}: {error}"
    result.reason = " ".join(result.reason.split())
    result.seconds = round(time.monotonic() - started, 1)
    return result


def _run_gate(directory: Path, precision: str, steps: int, result: Result) -> None:
    spec = GateSpec(
        model=str(directory),
        dtypes=(precision,),  # type: ignore[arg-type]  # checked by pydantic
        steps=steps,
        micro_steps=1,
        bucket="short",
        seed=SEED,
        threads=1,
    )
    run = directory.parent / "run"
    verdict = gate.run(spec, run, resume=False, in_process=True, listeners=())
    survey = RunDirectory.read(run).survey()
    result.applies_ac, result.blocks = survey.applies_ac, len(survey.blocks)
    result.parameters = survey.num_parameters
    _note(verdict, result)
    switch = survey.applies_ac == "hugging-face"
    if result.outcome in ("passed", "failed"):
        result.bare = bare.compare(directory, seed=SEED, switch=switch, blocks=survey.blocks)
        result.escaped = not result.bare["again"] and any(
            result.bare[track] and outcome in (Outcome.PASS, Outcome.WARN)
            for track, outcome in result.tracks.items()
        )


def _note(verdict: Verdict, result: Result) -> None:
    tracks = [track for cell in verdict.cells for track in cell.tracks]
    result.compared = sum(cell.compared for cell in verdict.cells)
    result.tracks = {track.track: str(track.outcome) for track in tracks}
    result.flagged = [line for track in tracks for line in _flagged(track)]
    result.causes = [
        f"{track.track}: {cause.kind} {cause.where} {cause.operator} {cause.source}".strip()
        for track in tracks
        for cause in track.causes
    ]
    result.text = "\n\n".join(case.text for track in tracks for case in track.cases if _red(case))[:8000]
    headlines = dict.fromkeys(case.headline for track in tracks for case in track.cases if _red(case))
    match verdict.outcome:
        case Outcome.PASS | Outcome.WARN:
            result.outcome = "passed"
            result.reason = "; ".join(dict.fromkeys(line.split(": ", 1)[1] for line in result.flagged))
        case Outcome.FAIL:
            result.outcome, result.reason = "failed", "; ".join(headlines) or verdict.headline
        case _:
            raised = [cell.raised.message for cell in verdict.cells if cell.raised is not None]
            result.reason = "; ".join((*raised, *headlines)) or verdict.headline


def _red(case: Case) -> bool:
    return case.outcome in (Outcome.FAIL, Outcome.ERROR)


def _flagged(track: TrackVerdict) -> list[str]:
    lines = [
        f"{track.track}: {case.outcome} {case.name}"
        for case in track.cases
        if case.outcome not in (Outcome.PASS, Outcome.SKIPPED)
    ]
    lines += [
        f"{track.track}: {finding.severity} {finding.kind} {finding.where}"
        for case in track.cases
        for finding in case.findings
    ]
    return list(dict.fromkeys(lines))

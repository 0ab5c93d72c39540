"""What a person may ask: the option surface, and arguments parsed into a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from acgate.errors import ExitCode, OutputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

_EPILOG = f"Exit codes: {'; '.join(f'{code:d} {code.sentence}' for code in ExitCode)}."

app = typer.Typer(
    name="acgate",
    help="Release gate for activation checkpointing: proves that recomputation changes no gradient.",
    epilog=_EPILOG,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_NOT_SETTINGS = frozenset({"directory", "config", "resume", "in_process", "github", "quiet", "verbose"})

Command = Literal["plan", "run", "judge", "selftest", "init"]

_MODEL = "Target: a Python file, package.module:attribute, or a model directory (default: built in)."
Model = Annotated[str | None, typer.Option("--model", metavar="PATH", help=_MODEL)]
Tracks = Annotated[str | None, typer.Option(metavar="LIST", help="AC treatments, such as none,block.")]
_TOPOLOGIES = "How ranks share the work: single (default), ddp, fsdp (that is FSDP2), fsdp1, tp, fsdp+tp, pp."
Topologies = Annotated[str | None, typer.Option(metavar="LIST", help=_TOPOLOGIES)]
_WORLD_SIZE = "Ranks of every topology but single (default: 2)."
WorldSize = Annotated[int | None, typer.Option("--world-size", metavar="N", help=_WORLD_SIZE)]
_REFERENCE_LAYERS = "Compare topologies with only the first K blocks, where one device holds no more."
ReferenceLayers = Annotated[
    int | None, typer.Option("--reference-layers", metavar="K", help=_REFERENCE_LAYERS)
]
Dtypes = Annotated[str | None, typer.Option(metavar="LIST", help="Precisions: float32,bfloat16,...")]
Steps = Annotated[int | None, typer.Option(metavar="N", help="Optimizer steps per track.")]
MicroSteps = Annotated[int | None, typer.Option(metavar="N", help="Forward/backward pairs per step.")]
Select = Annotated[list[str] | None, typer.Option(metavar="GLOB", help="Only these cells; repeatable.")]
Tolerances = Annotated[str | None, typer.Option(metavar="DIR", help="Directory of tolerance files.")]
Policy = Annotated[str | None, typer.Option(metavar="FILE", help="Policy file: how AC is applied.")]
Config = Annotated[str | None, typer.Option(metavar="FILE", help="Settings (default: acgate.toml).")]
Out = Annotated[str | None, typer.Option(metavar="DIR", help="Run directory (default: acgate-out).")]
Junit = Annotated[
    str | None, typer.Option("--junitxml", "--junit-xml", metavar="FILE", help="Write a JUnit report.")
]
_FAMILY = "JUnit dialect: xunit2 (default), or xunit1."
Family = Annotated[str | None, typer.Option("--junit-family", metavar="NAME", help=_FAMILY)]
Json = Annotated[str | None, typer.Option(metavar="FILE", help="Write the verdict as JSON.")]
_PLAN_JSON = "Write cells, tracks and checks as JSON."
PlanJson = Annotated[str | None, typer.Option("--json", metavar="FILE", help=_PLAN_JSON)]
_GITHUB = "On GitHub Actions: job summary, annotations, output that cannot give commands."
Github = Annotated[bool, typer.Option("--github", help=_GITHUB)]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")]
AsShipped = Annotated[bool, typer.Option("--as-shipped", help="Judge the kernels of production.")]
_EXPLAIN = "Trace the operators of every AC track, also where nothing failed."
Explain = Annotated[bool, typer.Option("--explain", help=_EXPLAIN)]
InProcess = Annotated[bool, typer.Option("--in-process", help="Run in this process, to debug a target.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Say only what is wrong.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Say more, with tracebacks.")]


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked.

    Attributes:
        settings: Settings by name; None means not given.
        directory: That of a run for `judge`, that of a project for `init`; None for the others.
    """

    command: Command
    settings: dict[str, object] = field(default_factory=dict)
    config: Path | None = None
    directory: Path | None = None
    resume: bool = False
    in_process: bool = False
    github: bool = False
    quiet: bool = False
    verbose: bool = False


@app.command()
def plan(
    *,
    model: Model = None,
    tracks: Tracks = None,
    topologies: Topologies = None,
    world_size: WorldSize = None,
    reference_layers: ReferenceLayers = None,
    dtypes: Dtypes = None,
    steps: Steps = None,
    micro_steps: MicroSteps = None,
    select: Select = None,
    policy: Policy = None,
    config: Config = None,
    json: PlanJson = None,
    as_shipped: AsShipped = False,
    in_process: InProcess = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> Request:
    """Show what a run would do: cells, tracks, blocks, regions, counts. With -q, only the cells."""
    return _request("plan", locals())


@app.command()
def run(
    *,
    model: Model = None,
    tracks: Tracks = None,
    topologies: Topologies = None,
    world_size: WorldSize = None,
    reference_layers: ReferenceLayers = None,
    dtypes: Dtypes = None,
    steps: Steps = None,
    micro_steps: MicroSteps = None,
    select: Select = None,
    tolerances: Tolerances = None,
    policy: Policy = None,
    config: Config = None,
    out: Out = None,
    junitxml: Junit = None,
    junit_family: Family = None,
    json: Json = None,
    resume: Resume = False,
    as_shipped: AsShipped = False,
    explain: Explain = False,
    in_process: InProcess = False,
    github: Github = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> Request:
    """Run the gate. The exit code is the verdict; reports are for reading."""
    return _request("run", locals())


@app.command()
def judge(
    directory: Annotated[str, typer.Argument(metavar="RUN_DIR", help="Directory of a run.")],
    *,
    tolerances: Tolerances = None,
    junitxml: Junit = None,
    junit_family: Family = None,
    json: Json = None,
    github: Github = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> Request:
    """Judge stored evidence again, without running anything."""
    return _request("judge", locals())


_FIXTURES = "Only these, by name, file or kind of cause; repeatable."
_EVERYTHING = "Each in all of its precisions, and the slow ones."
_LIST = "Name the fixtures, and run none."


@app.command()
def selftest(
    *,
    select: Annotated[
        list[str] | None, typer.Option("-k", "--select", metavar="GLOB", help=_FIXTURES)
    ] = None,
    dtypes: Annotated[
        str | None, typer.Option(metavar="LIST", help="Precisions (default: by turns).")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help=_EVERYTHING)] = False,
    ranks: Annotated[bool, typer.Option("--ranks", help="Those of several ranks instead.")] = False,
    listing: Annotated[bool, typer.Option("--list", help=_LIST)] = False,
    junitxml: Junit = None,
    json: Json = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> Request:
    """Show what this gate sees here: known faults, with their causes, and clean cases, through the gate."""
    return _request("selftest", locals())


@app.command()
def init(
    directory: Annotated[str, typer.Argument(metavar="[DIR]", help="The project (default: here).")] = ".",
    *,
    model: Model = None,
    github: Annotated[bool, typer.Option("--github", help="Write a GitHub workflow, too.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> Request:
    """Write acgate.toml, and a target where there is none, from what a project holds; overwrite nothing."""
    return _request("init", locals())


def _request(command: Command, given: dict[str, Any]) -> Request:
    """Sort the parameters of a command (its `locals()`) into settings and the rest."""
    for name, value in given.items():
        if value == "":
            # Most likely a variable that is not set; ignoring it would check something else.
            if name == "directory":
                raise UsageError("the name of the directory is empty; name one")
            raise UsageError(f"--{name.replace('_', '-')}: is empty; leave it out, or name something")
    settings = {name: value for name, value in given.items() if name not in _NOT_SETTINGS}
    for name in {"tracks", "topologies", "dtypes"} & settings.keys():
        settings[name] = _items(name, settings[name])
    for name in {"select", "as_shipped", "explain"} & settings.keys():
        # Given or not given; there is no option that takes back what a configuration says.
        settings[name] = settings[name] or None
    directory, config = given.get("directory"), given.get("config")
    return Request(
        command,
        settings,
        config=None if config is None else Path(config),
        directory=None if directory is None else Path(directory),
        resume=given.get("resume", False),
        in_process=given.get("in_process", False),
        github=given.get("github", False),
        quiet=given["quiet"],
        verbose=given["verbose"],
    )


def _items(name: str, text: str | None) -> tuple[str, ...] | None:
    """Split a comma list; None means not given."""
    if text is None:
        return None
    items = tuple(item.strip() for item in text.split(","))
    if not all(items):
        raise UsageError(f'--{name}: "{text}" has an empty entry; separate names by single commas')
    return items


def parse(argv: Sequence[str]) -> Request | None:
    """Turn arguments into a request; None where help was asked for, and shown.

    Raises:
        UsageError: The arguments are wrong.
        OutputError: Help was asked for and cannot be shown.
    """
    # The base class of what the parser raises has no public name that all versions of typer share.
    base = [kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"]
    refusals = tuple(cast("list[type[typer.BadParameter]]", base))
    command = typer.main.get_command(app)
    try:
        result = command.main(args=list(argv), prog_name="acgate", standalone_mode=False)
    except refusals as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "acgate"
        raise UsageError(f"{error.format_message().rstrip('.')} (see {path} --help)") from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit:  # typer's answer where help goes to a pipe that was closed
        return None
    except OSError as error:  # only help is printed there
        raise OutputError(f"cannot print: {error.strerror or error}") from error
    if not isinstance(result, Request):
        if result:  # typer makes an exit code of an interrupt
            raise KeyboardInterrupt
        return None
    if result.quiet and result.verbose:
        raise UsageError("-q and -v exclude each other")
    return result

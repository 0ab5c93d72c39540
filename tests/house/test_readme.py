"""What the documents say is so: every block, command, option, link and exit code that stands in them.

The blocks after `<!-- run command -->` and `<!-- test command -->` set up an environment of their own. The
second is run as it stands by `.ci/run`, the first by the workflow; here they are only taken apart.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import pytest
import typer
import yaml
from documents import ROOT, SHELL, Block, blocks, commands, documents, inline_code, links

from acgate.__main__ import main
from acgate.arguments import app, parse
from acgate.cause_kinds import CauseKind
from acgate.errors import PRECEDENCE, ExitCode
from acgate.spec.loading import load_spec
from acgate.spec.models import GateSpec
from acgate.spec.policy import load_policy

if TYPE_CHECKING:
    from pathlib import Path

BLOCKS = [block for path in documents() for block in blocks(path)]
KINDS = {SHELL, "python", "toml", "yaml", "text"}
PYTHONS = {"python", "python3", ".venv/bin/python"}
PLACEHOLDERS = {"path/to/model", "path/to/adapter"}
LINTERS = {"ruff check", "ruff format", "mypy", "lint-imports"}


def of_kind(*kinds: str) -> Any:
    """Run a test for each block of these kinds, named by document and line."""
    found = [block for block in BLOCKS if block.kind in kinds]
    return pytest.mark.parametrize("block", found, ids=str)


def targets() -> dict[str, Block]:
    """Return the blocks that are targets, by the file name in their first line."""
    named = ((block, re.match(r"# (\w+\.py)\n", block.text)) for block in BLOCKS if block.kind == "python")
    return {found[1]: block for block, found in named if found}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files that the documents describe."""
    for name, block in targets().items():
        (tmp_path / name).write_text(block.text)
    for block in BLOCKS:
        if block.kind == "toml" and "block" in tomllib.loads(block.text):
            (tmp_path / "policy.toml").write_text(block.text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def acgate_arguments(words: list[str]) -> list[str] | None:
    """Return the arguments of acgate in a command, None where it is another command."""
    if words[0] == "acgate":
        return words[1:]
    if words[0] in {*PYTHONS, "torchrun"} and "acgate" in words:
        at = words.index("acgate")
        if words[at - 1] == "-m" and (at == 2 or words[0] == "torchrun"):
            return words[at + 1 :]
    return None


def check_acgate(arguments: list[str], place: Path) -> None:
    """Let acgate itself read the arguments; files that they name must be described in the documents."""
    request = parse(arguments)
    assert request is not None
    model = request.settings.get("model")
    if isinstance(model, str) and model not in PLACEHOLDERS:
        name = model.partition(":")[0]
        assert (place / name).exists() or (ROOT / name).exists(), f"{name} is described nowhere"
    if request.command in {"plan", "run"}:
        rest = {name: value for name, value in request.settings.items() if name != "model"}
        load_spec(rest, request.config, place)


def check_pip(arguments: list[str]) -> None:
    """Extras that are installed exist, and the pinned torch is one that acgate runs on."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert arguments[0] == "install"
    for word in arguments[1:]:
        own = re.fullmatch(r"(?:\.|acgate)(?:\[([\w,]+)\])?", word)
        torch = re.fullmatch(r"torch(?:==(\d+)\.(\d+)\.\d+)?", word)
        assert own or torch or word in {"-e", "pre-commit"}, word
        if own and own[1]:
            assert set(own[1].split(",")) <= project["optional-dependencies"].keys()
        if torch and torch[1]:
            assert (int(torch[1]), int(torch[2])) >= (2, 11)


def check_pytest(arguments: list[str], place: Path) -> None:
    """Folders of tests exist, and pytest with this plugin and xdist takes the options."""
    paths = [word for word in arguments if word == "acgate.toml" or word.startswith("tests")]
    assert all((ROOT / path).exists() for path in paths if path != "acgate.toml"), paths
    options = [word for word in arguments if word not in paths]
    if not options:
        return
    # In a directory without tests, where it can only read its arguments.
    empty = place / "empty"
    empty.mkdir(exist_ok=True)
    plugin = (
        []
        if "acgate" in {entry.name for entry in entry_points(group="pytest11")}
        else ["-p", "acgate.pytest_plugin"]
    )
    command = [sys.executable, "-m", "pytest", *plugin, *options, "--collect-only", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=empty, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stdout + done.stderr


def check_script(words: list[str]) -> None:
    """A script of this repository has the options that are given to it."""
    text = (ROOT / words[1]).read_text()
    for word in words[2:]:
        if word.startswith("-"):
            assert f'"{word}"' in text, f"{words[1]} has no {word}"


def check_command(words: list[str], place: Path) -> None:
    """Check one command; one that is not known here fails."""
    arguments = acgate_arguments(words)
    match words:
        case _ if arguments is not None:
            check_acgate(arguments, place)
        case [python, "-m", "venv", ".venv"] if python in PYTHONS:
            pass
        case [".", ".venv/bin/activate"]:
            pass
        case [python, "-m", "pip", *rest] if python in PYTHONS:
            check_pip(rest)
        case [".venv/bin/pip" | "pip", *rest]:
            check_pip(rest)
        case [python, "-m", "pytest", *rest] if python in PYTHONS:
            check_pytest(rest, place)
        case ["pytest", *rest]:
            check_pytest(rest, place)
        case [python, script, *_] if python in PYTHONS and script.endswith(".py"):
            check_script(words)
        case ["pre-commit", "install"]:
            pass
        case _:
            known = " ".join(words[:2]) if words[0] == "ruff" else " ".join(words)
            assert known in LINTERS, f"a command that this test does not know: {words}"
            assert known in (ROOT / ".ci/run").read_text()


def test_no_block_is_of_a_kind_that_nobody_checks():
    """A block in another language needs a test of its own first; the documents do have blocks."""
    assert {(str(block), block.kind) for block in BLOCKS if block.kind not in KINDS} == set()
    assert {"README.md", "CONTRIBUTING.md", "benchmarks/README.md", "fixtures/targets/README.md"} <= {
        block.path.as_posix() for block in BLOCKS
    }
    assert {block.kind for block in BLOCKS if block.path.name == "README.md"} >= {SHELL, "python", "toml"}


@of_kind(SHELL)
def test_every_command_is_one_that_can_be_given(block, place):
    """acgate's own parser takes its commands; other commands name files, folders and options that exist."""
    found = list(commands(block.text))
    assert found
    for words in found:
        check_command(words, place)


def test_the_command_of_the_tests_is_the_one_that_is_run_before_a_merge():
    """`.ci/run` takes the block after this marker from the README, so exactly one block may have it."""
    assert [block.path.name for block in BLOCKS if block.marker == "test command"] == ["README.md"]
    assert "/^<!-- test command -->$/" in (ROOT / ".ci/run").read_text()
    (command,) = [block for block in BLOCKS if block.marker == "run command"]
    assert list(commands(command.text))[-1] == [".venv/bin/python", "-m", "acgate", "run"]


@pytest.mark.parametrize("path", documents(), ids=str)
def test_commands_and_options_within_lines_exist(path, place):
    """Where a sentence names a command of acgate or an option, it has it."""
    group = typer.main.get_command(app)
    surface = {
        word
        for command in group.commands.values()  # type: ignore[attr-defined]
        for option in command.params
        for word in option.opts
    }
    scripts = "".join(script.read_text() for script in (ROOT / "benchmarks").glob("*.py"))
    for code in inline_code(path):
        if re.match(r"(?:acgate|python -m acgate|torchrun) \S*[a-z]", code):
            for words in commands(code):
                arguments = acgate_arguments(words)
                assert arguments is not None, code
                if arguments[0] == "judge" and len(arguments) == 1:
                    arguments.append("RUN_DIR")
                check_acgate([word.strip("[]") for word in arguments], place)
        elif re.match(r"--[a-z]", code):
            name = re.split(r"[ =]", code)[0]
            known = name in surface or name.startswith("--acgate-") or f'"{name}"' in scripts
            assert known or name == "--requirement", f"{path}: {name}"


@of_kind("toml")
def test_settings_are_read_by_what_reads_them(block, place):
    """A block is a policy or settings, and valid; one that is said to show defaults holds exactly these."""
    path = place / "block.toml"
    path.write_text(block.text)
    if {"block", "selective"} & tomllib.loads(block.text).keys():
        load_policy(path)
        return
    spec = load_spec({}, path, place).spec
    if block.lead.rstrip(":.").endswith("these are the defaults"):
        assert spec == GateSpec()
        assert set(tomllib.loads(block.text)["parallel"]) == set(GateSpec().parallel.model_dump())


@of_kind("python")
def test_python_is_python(block):
    """Every snippet compiles."""
    compile(block.text, str(block), "exec")


def test_targets_are_targets(place):
    """A snippet that is named as a file loads as a target and trains."""
    from acgate.targets.blocks import find_blocks
    from acgate.targets.load import load_target

    assert "target.py" in targets()
    for name in targets():
        target = load_target(name, seed=1)
        model = target.build_model()
        assert find_blocks(model, target.blocks).names
        for batch in target.batches("default", 6):
            target.loss(model, batch).backward()


def test_a_variant_of_the_built_in_target_loads(place):
    """What is said of a larger built-in model works in a file beside a copy of it; nothing is built here."""
    from acgate.targets.load import load_target

    found = [block for block in BLOCKS if block.kind == "python" and "from llama_like import" in block.text]
    assert found
    shutil.copy(ROOT / "fixtures/targets/llama_like.py", place)
    for block in found:
        (place / "larger.py").write_text(block.text)
        assert load_target("larger.py", seed=1).blocks


def test_the_commands_on_a_target_work(place, capsys):
    """The README's plan, run and judge on its own target: it passes, and the report is there."""
    (block,) = [b for b in BLOCKS if b.kind == SHELL and "acgate plan --model target.py" in b.text]
    # Half the precisions and no processes: it is the commands that are tested here.
    quick = ["--in-process", "--dtypes=float32"]
    shorter = {"plan": quick, "run": quick, "judge": [], "selftest": ["--list"]}
    given = [acgate_arguments(words) or [] for words in commands(block.text)]
    for arguments in given:
        code = main([*arguments, *shorter[arguments[0]]])
        assert code == ExitCode.PASS, (arguments, capsys.readouterr())
    assert [arguments[0] for arguments in given] == list(shorter)
    assert (place / "junit.xml").is_file()
    assert (place / "acgate-out" / "verdict.json").is_file()


@pytest.mark.slow
def test_the_command_on_several_ranks_works(place):
    """The README's run on one device, DDP and FSDP passes with its own target, in processes with gloo."""
    found = [
        words for b in BLOCKS if b.kind == SHELL for words in commands(b.text) if "single,ddp,fsdp" in words
    ]
    assert found
    for words in found:
        arguments = acgate_arguments(words)
        assert arguments is not None
        target = place / "target.py"
        target.write_text(target.read_text().replace("range(6)]", "range(12)]"))
        assert main(arguments) == ExitCode.PASS


@of_kind("yaml")
def test_yaml_is_yaml_and_its_commands_exist(block, place):
    """A snippet for a service loads, and the commands of acgate in it can be given."""
    loaded = yaml.safe_load(block.text)
    assert loaded
    seen = [line.strip(" -").removeprefix("run:").strip() for line in block.text.splitlines()]
    for line in seen:
        if "-m acgate" in line or "-m pip" in line:
            for words in commands(line):
                check_command(words, place)


@of_kind("text")
def test_output_is_of_a_kind_that_there_is(block):
    """What is shown as output names causes that acgate knows."""
    shown = re.findall(r"CAUSE  \S+ / \S+ / (\S+) ", block.text)
    assert shown
    assert set(shown) <= {kind.value for kind in CauseKind}


@pytest.mark.parametrize("path", documents(), ids=str)
def test_links_lead_somewhere(path):
    """A link to a file of this repository leads to one."""
    for link in links(path):
        if "://" not in link:
            assert ((ROOT / path).parent / link.partition("#")[0]).exists(), f"{path}: {link}"


def test_the_exit_codes_are_those_of_the_program(capsys):
    """The README's table has each code with its sentence, and the order in which they win; `--help` the same."""
    text = (ROOT / "README.md").read_text()
    table = ["| code | meaning |", "|---|---|", *(f"| {code:d} | {code.sentence} |" for code in ExitCode)]
    _, _, after = text.partition("<!-- exit codes -->")
    assert after.strip().splitlines()[: len(table) + 1] == [*table, ""]
    assert f"the first of {', '.join(f'{code:d}' for code in PRECEDENCE)} wins" in " ".join(text.split())
    parse(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "Exit codes: " + "; ".join(f"{code:d} {code.sentence}" for code in ExitCode) in said


def test_the_exit_codes_of_the_errors_are_those_of_their_classes():
    """The tree of errors in the docstring shows the exit code that each class has."""
    from acgate import errors

    assert errors.__doc__ is not None
    shown = dict(re.findall(r"(\w+Error)\s+(\d)", errors.__doc__))
    found = {name: str(int(kind.exit_code)) for name, kind in vars(errors).items() if name.endswith("Error")}
    assert shown == found

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acgate.errors import ExitCode, PolicyError, UsageError
from acgate.spec.configuration import find_config
from acgate.spec.loading import cascade, load_spec
from acgate.spec.models import GateSpec
from acgate.spec.outputs import load_outputs


def refused(tmp_path: Path, text: str, **arguments: object) -> list[str]:
    (tmp_path / "acgate.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load_spec(arguments, None, tmp_path)
    assert caught.value.exit_code is ExitCode.USAGE
    return str(caught.value).splitlines()


def test_without_anything_every_setting_is_the_default(tmp_path: Path) -> None:
    """No file and no argument give the specification's own defaults, and say so."""
    loaded = load_spec({}, None, tmp_path)
    assert loaded.spec == GateSpec()
    assert set(loaded.origin.values()) == {"default"}
    assert loaded.outputs.out == tmp_path / "acgate-out"


def test_arguments_beat_the_file_which_beats_the_default(tmp_path: Path) -> None:
    """Precedence is default < configuration < arguments, and the origin names the winner."""
    (tmp_path / "acgate.toml").write_text("steps = 5\nmicro_steps = 7\n")
    loaded = load_spec({"steps": 4, "micro_steps": None}, None, tmp_path)
    assert (loaded.spec.steps, loaded.spec.micro_steps, loaded.spec.seed) == (4, 7, GateSpec().seed)
    origins = {name: loaded.origin[name] for name in ("steps", "micro_steps", "seed")}
    assert origins == {"steps": "--steps", "micro_steps": "acgate.toml", "seed": "default"}


@given(
    configured=st.dictionaries(st.sampled_from("abc"), st.integers()),
    arguments=st.dictionaries(st.sampled_from("abc"), st.none() | st.integers()),
)
def test_each_value_comes_from_where_its_origin_says(
    configured: dict[str, int], arguments: dict[str, int | None]
) -> None:
    """For every combination, value and origin agree, and None never overrides."""
    result = cascade("abc", configured, "file", arguments)
    for name in "abc":
        if arguments.get(name) is not None:
            assert (result.values[name], result.origin[name]) == (arguments[name], f"--{name}")
        elif name in configured:
            assert (result.values[name], result.origin[name]) == (configured[name], "file")
        else:
            assert name not in result.values
            assert result.origin[name] == "default"


def test_every_part_of_the_specification_can_be_configured(tmp_path: Path) -> None:
    """Tables, lists of tables, inline policy and outputs are all read."""
    (tmp_path / "acgate.toml").write_text(
        """
        tracks = ["block", "none"]
        dtypes = ["float64"]
        topologies = ["single", "fsdp+tp"]
        world_size = 4
        reference_layers = 2
        unexplained = "warn"
        out = "here"
        junitxml = "reports/junit.xml"
        json = "v.json"
        [deadlines]
        import = 10
        step = 2.5
        [floor]
        repeats = 4
        [[allow]]
        kind = "reentrant"
        where = "layers.*"
        reason = "old hooks"
        until = 2027-01-01
        [policy.selective]
        save = ["attention"]
        region_size = 2
        [parallel]
        gradient_sync = "every"
        reshard_after_forward = false
        """
    )
    loaded = load_spec({}, None, tmp_path)
    spec = loaded.spec
    assert spec.tracks == ("none", "block")
    assert (spec.deadlines.import_, spec.deadlines.step, spec.floor.repeats) == (10, 2.5, 4)
    assert (spec.allow[0].kind, str(spec.allow[0].until)) == ("reentrant", "2027-01-01")
    assert spec.policy.selective.save == ("attention",)
    assert (spec.topologies, spec.world_size, spec.reference_layers) == (("single", "fsdp+tp"), 4, 2)
    assert (spec.parallel.gradient_sync, spec.parallel.reshard_after_forward) == ("every", False)
    assert loaded.outputs.out == tmp_path / "here"
    assert loaded.outputs.junitxml == tmp_path / "reports" / "junit.xml"
    assert loaded.outputs.json == tmp_path / "v.json"


def test_pyproject_is_read_where_it_has_the_table(tmp_path: Path) -> None:
    """[tool.acgate] configures; a pyproject.toml without it is nobody's business."""
    path = tmp_path / "pyproject.toml"
    path.write_text("[project]\nname = 'x'\n")
    assert find_config(None, tmp_path) is None
    path.write_text("[tool.acgate]\nsteps = 9\n[tool.acgate.floor]\nrepeats = 5\n")
    loaded = load_spec({}, None, tmp_path)
    assert (loaded.spec.steps, loaded.spec.floor.repeats, loaded.origin["steps"]) == (9, 5, "pyproject.toml")


def test_two_configurations_are_an_error_that_names_both(tmp_path: Path) -> None:
    """Two sources would leave open which one was tested; --config decides."""
    (tmp_path / "pyproject.toml").write_text("[tool.acgate]\nsteps = 9\n")
    (message,) = refused(tmp_path, "steps = 5")
    assert "acgate.toml" in message
    assert "pyproject.toml" in message
    assert "--config" in message
    assert load_spec({}, Path("pyproject.toml"), tmp_path).spec.steps == 9


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stpes = 3", 'acgate.toml: stpes: unknown key; did you mean "steps"?'),
        ("micro-steps = 3", 'acgate.toml: micro-steps: unknown key; did you mean "micro_steps"?'),
        ("steps = 0", "acgate.toml: steps: must be 1 or more, got 0"),
        ('steps = "3"', 'acgate.toml: steps: must be a whole number, got "3"'),
        ("steps = true", "acgate.toml: steps: must be a whole number, got true"),
        ("steps = 3.0", "acgate.toml: steps: must be a whole number, got 3.0"),
        ("seed = -1", "acgate.toml: seed: must be 0 or more, got -1"),
        ("floor = 3", "acgate.toml: floor: must be a table, got 3"),
        ('dtypes = "float32"', 'acgate.toml: dtypes: must be a list, got "float32"'),
        ("dtypes = []", "acgate.toml: dtypes: must not be empty, nothing would be run"),
        ("[deadlines]\nstep = nan", "acgate.toml: [deadlines] step: must be a finite number, got nan"),
        ("[deadlines]\nstep = inf", "acgate.toml: [deadlines] step: must be a finite number, got inf"),
        ("[deadlines]\nstep = -1", "acgate.toml: [deadlines] step: must be greater than 0, got -1"),
        ("[deadlines]\nimprt = 1", 'acgate.toml: [deadlines] imprt: unknown key; did you mean "import"?'),
        ("[deadlines]\nimport_ = 1", 'acgate.toml: [deadlines] import_: unknown key; did you mean "import"?'),
        ("[floor]\nfactor = nan", "acgate.toml: [floor] factor: must be a finite number, got nan"),
        ("[floor]\nrepeats = 2", "acgate.toml: [floor] repeats: must be 3 or more, got 2"),
        (
            "[[allow]]\nkind = 'reentrnt'\nreason = 'x'",
            'acgate.toml: [[allow]] entry 1, kind: no finding is of kind "reentrnt"; did you mean'
            ' "reentrant"?',
        ),
        (
            "[[allow]]\nkind = 'reentrant'",
            "acgate.toml: [[allow]] entry 1, reason: is missing, and there is no default",
        ),
        (
            "[policy.selective]\ncoverage = 'last-0'",
            'acgate.toml: [policy.selective] coverage: must be "all", "every-<n>" or "last-<k>", got "last-0"',
        ),
        (
            "topologies = ['ddp2']",
            'acgate.toml: topologies, entry 1: must be "single", "ddp", "fsdp", "fsdp1", "tp", "fsdp+tp" or'
            ' "pp", got "ddp2"; did you mean "ddp"?',
        ),
        ("world_size = 0", "acgate.toml: world_size: must be 1 or more, got 0"),
        ("wrold_size = 2", 'acgate.toml: wrold_size: unknown key; did you mean "world_size"?'),
        ("reference_layers = 0", "acgate.toml: reference_layers: must be 1 or more, got 0"),
        (
            "[parallel]\ngradient_snyc = 'last'",
            'acgate.toml: [parallel] gradient_snyc: unknown key; did you mean "gradient_sync"?',
        ),
        (
            "[parallel]\ngradient_sync = 'evry'",
            'acgate.toml: [parallel] gradient_sync: must be "last" or "every", got "evry"; did you mean'
            ' "every"?',
        ),
        (
            "[parallel]\ntensor_parallel_size = 1",
            "acgate.toml: [parallel] tensor_parallel_size: must be 2 or more, got 1",
        ),
        ("tracks = ['none', 'block', 'block']", "acgate.toml: tracks: a track is named twice"),
        ("bucket = '../x'", 'acgate.toml: bucket: "../x" must be made of letters, digits and single . _ + -'),
        (
            "unexplained = 'wran'",
            'acgate.toml: unexplained: must be "fail" or "warn", got "wran"; did you mean "warn"?',
        ),
    ],
)
def test_a_mistake_is_named_with_section_key_rule_and_spelling(
    tmp_path: Path, text: str, message: str
) -> None:
    """Each message says where, what rule is broken, what was found, and what was meant."""
    assert refused(tmp_path, text) == [message]


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    """A person fixes a file once, not once per mistake."""
    lines = refused(tmp_path, "steps = 0\nsede = 3\n[floor]\nrepeats = 1", dtypes=("float23",))
    assert len(lines) == 4
    assert sum(line.startswith("--dtypes: ") for line in lines) == 1


def test_a_wrong_argument_is_named_as_the_option_it_came_from(tmp_path: Path) -> None:
    """What came from the command line is not blamed on the file."""
    lines = refused(tmp_path, "micro_steps = 3", micro_steps=0, dtypes=("float32", "bfloat61"))
    assert lines == [
        '--dtypes: must be "float32", "float64", "bfloat16", "bfloat16.pure" or "bfloat16.mixed",'
        ' got "bfloat61"; did you mean "bfloat16"?',
        "--micro-steps: must be 1 or more, got 0",
    ]


def test_pyproject_sections_are_named_in_full(tmp_path: Path) -> None:
    """A message can be searched for in the file as it is written there."""
    (tmp_path / "pyproject.toml").write_text("[tool.acgate.floor]\nrepeats = 1\n")
    with pytest.raises(UsageError, match=r"^pyproject.toml: \[tool.acgate.floor\] repeats: must be 3"):
        load_spec({}, None, tmp_path)


@pytest.mark.parametrize("content", [b"steps = ", b"steps = 1\nsteps = 2", b"\xff\xfe", b"=" * 3])
def test_what_is_not_toml_is_a_usage_error_that_names_the_file(tmp_path: Path, content: bytes) -> None:
    """A damaged file is reported, never ignored."""
    (tmp_path / "acgate.toml").write_bytes(content)
    with pytest.raises(UsageError, match=r"acgate\.toml: is not"):
        load_spec({}, None, tmp_path)


def test_a_named_configuration_must_exist(tmp_path: Path) -> None:
    """--config never falls back to something else."""
    (tmp_path / "acgate.toml").write_text("steps = 5")
    with pytest.raises(UsageError, match="there is no such file"):
        load_spec({}, Path("other.toml"), tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    with pytest.raises(UsageError, match=r"has no table \[tool\.acgate\]"):
        load_spec({}, Path("pyproject.toml"), tmp_path)


def test_paths_in_a_file_are_relative_to_that_file(tmp_path: Path) -> None:
    """The same file means the same from every directory; names of modules stay names."""
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "model.py").touch()
    (folder / "policy.toml").write_text("[selective]\nfunction = 'mine.py:decide'\n")
    (folder / "mine.py").touch()
    config = folder / "gate.toml"
    config.write_text('model = "model.py:Tiny"\npolicy = "policy.toml"\nout = "o"\n')
    loaded = load_spec({}, Path("conf/gate.toml"), tmp_path)
    assert loaded.spec.model == f"{folder / 'model.py'}:Tiny"
    assert loaded.spec.policy.selective.function == f"{folder / 'mine.py'}:decide"
    assert loaded.outputs.out == folder / "o"
    config.write_text('model = "package.module:Tiny"\n')
    assert load_spec({}, config, tmp_path).spec.model == "package.module:Tiny"


def test_the_policy_argument_beats_the_inline_policy(tmp_path: Path) -> None:
    """The policy that was named is the one that is tested."""
    (tmp_path / "acgate.toml").write_text("[policy.block]\ncoverage = 'last-2'\n")
    (tmp_path / "p.toml").write_text("[block]\ncoverage = 'every-3'\n")
    assert load_spec({}, None, tmp_path).spec.policy.block.coverage == "last-2"
    loaded = load_spec({"policy": "p.toml"}, None, tmp_path)
    assert (loaded.spec.policy.block.coverage, loaded.origin["policy"]) == ("every-3", "--policy")


def test_a_bad_inline_policy_is_a_policy_error(tmp_path: Path) -> None:
    """The class of the error is that of a policy file."""
    (tmp_path / "acgate.toml").write_text("[policy.blok]\n")
    with pytest.raises(
        PolicyError, match=r'acgate.toml: \[policy\] blok: unknown key; did you mean "block"\?'
    ):
        load_spec({}, None, tmp_path)


def test_outputs_are_found_even_where_the_rest_is_wrong(tmp_path: Path) -> None:
    """A run that fails early still knows which stale reports to replace."""
    (tmp_path / "acgate.toml").write_text("stpes = 3\nout = 'o'\njunitxml = 5\njson = 'v.json'\n")
    outputs = load_outputs({"junitxml": "j.xml"}, find_config(None, tmp_path), tmp_path)
    assert (outputs.out, outputs.junitxml, outputs.json) == (
        tmp_path / "o",
        tmp_path / "j.xml",
        tmp_path / "v.json",
    )


@pytest.mark.parametrize("track", ["block.x", "a/b", "", "-x", "a b"])
def test_a_track_name_that_cannot_be_a_file_name_is_refused(tmp_path: Path, track: str) -> None:
    """Names of tracks become names of evidence, where a dot has a meaning."""
    with pytest.raises(UsageError, match=r"^--tracks: .* must be made of letters"):
        load_spec({"tracks": ("none", track)}, None, tmp_path)


def test_undecodable_arguments_are_refused_not_crashed_on(tmp_path: Path) -> None:
    """Bytes that are no text arrive as lone surrogates."""
    with pytest.raises(UsageError, match=r"^--model: "):
        load_spec({"model": "\udcff.py"}, None, tmp_path)


@pytest.mark.parametrize("name", ["model", "tolerances", "out", "junitxml", "json"])
@pytest.mark.parametrize(("text", "rule"), [("", "must not be empty"), ("a\\u0000b", "NUL character")])
def test_what_cannot_name_a_file_is_refused(tmp_path: Path, name: str, text: str, rule: str) -> None:
    """Nothing is written to a place that nobody named, and nothing crashes later."""
    (problem,) = refused(tmp_path, f'{name} = "{text}"')
    assert problem.startswith(f"acgate.toml: {name}: ")
    assert rule in problem
    outputs = load_outputs({}, find_config(None, tmp_path), tmp_path)
    assert (outputs.out, outputs.junitxml, outputs.json) == (tmp_path / "acgate-out", None, None)


def test_a_model_may_have_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    """It is not looked for beside the file that names it; the worker says that it is missing."""
    (tmp_path / "acgate.toml").write_text(f'model = "{"m" * 5000}"')
    assert load_spec({}, None, tmp_path).spec.model == "m" * 5000


@pytest.mark.parametrize(
    ("name", "text"), [("acgate.toml", ""), ("pyproject.toml", "[tool.acgate]\nsteps = 3\n")]
)
def test_no_other_model_is_checked_where_a_directory_above_names_one(
    tmp_path: Path, name: str, text: str
) -> None:
    """A wrong working directory must not end in a pass of the built-in target."""
    (tmp_path / name).write_text(text)
    below = tmp_path / "tests" / "unit"
    below.mkdir(parents=True)
    with pytest.raises(UsageError, match=r"there is no acgate\.toml in .*unit, but .*configures acgate"):
        load_spec({}, None, below)
    assert load_spec({"model": "target.py"}, None, below).spec.model is not None
    (below / "acgate.toml").touch()
    load_spec({}, None, below)

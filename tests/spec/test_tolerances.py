"""Tolerance files are read strictly: every way to be wrong is refused with file, section, key and rule."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acgate.errors import ExitCode, ToleranceError
from acgate.spec.tolerances import COMPARISONS, METRICS, QUANTITIES, Comparison, load_tolerances
from acgate.vocabulary import Quantity

FILES = Path(__file__).parents[2] / "tolerances"
SOUND = (FILES / "float32.toml").read_text(encoding="utf-8").partition("[[override]]")[0]
LINE = 'rel_err = { limit = 1e-5, why = "'
SECTION = "[ac_vs_none.gradient]\nrel_err = { limit = 1e-5"


def write(directory: Path, text: str) -> Path:
    (directory / "float32.toml").write_text(text, encoding="utf-8")
    return directory


@pytest.mark.parametrize("precision", ["float64", "float32", "bfloat16", "bfloat16.pure"])
def test_the_files_that_come_with_acgate_are_complete(precision: str) -> None:
    """Every comparison, quantity and metric has a limit with a reason, and says that it is provisional."""
    tolerances = load_tolerances(FILES, precision)
    for comparison in COMPARISONS:
        for quantity in QUANTITIES:
            for metric in METRICS:
                limit = tolerances.limit(comparison, quantity, metric, "a.weight", "single")
                assert 0 <= limit.limit < 1
                assert limit.source == "provisional"
                assert len(limit.why) > 10


@pytest.mark.parametrize("precision", ["float64", "float32", "bfloat16"])
def test_tensor_parallel_has_wider_limits_across_topologies_only(precision: str) -> None:
    """Cut products round more often than added gradients; AC against none is judged alike everywhere."""
    tolerances = load_tolerances(FILES, precision)

    def limit(comparison: Comparison, topology: str) -> float:
        return tolerances.limit(comparison, Quantity.GRADIENT, "rel_err", "a.weight", topology).limit

    strict = limit("topology_vs_single", "ddp")
    for topology in ("fsdp", "fsdp1", "pp"):
        assert limit("topology_vs_single", topology) == strict
    for topology in ("tp", "fsdp+tp"):
        assert limit("topology_vs_single", topology) > strict
        assert limit("ac_vs_none", topology) == limit("ac_vs_none", "single")


@pytest.mark.parametrize("form", ["pure", "mixed"])
def test_all_forms_of_bfloat16_use_one_file(form: str) -> None:
    """`bfloat16.pure` and `bfloat16.mixed` are judged by the file of their dtype."""
    assert load_tolerances(FILES, f"bfloat16.{form}") == load_tolerances(FILES, "bfloat16")


def test_a_missing_file_is_named_with_what_to_do(tmp_path: Path) -> None:
    """No other dtype's limits stand in."""
    with pytest.raises(ToleranceError, match=r"float16\.toml.*no tolerance file.*drop float16") as caught:
        load_tolerances(tmp_path, "float16")
    assert caught.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "[ac_vs_none.gradient]",
            "[ac_vs_none.gradientt]",
            r'\[ac_vs_none\], gradientt.*did you mean "gradient"',
        ),
        ("[ac_vs_none.loss]", "[ac_vs_nome.loss]", r'top level, ac_vs_nome.*did you mean "ac_vs_none"'),
        (SECTION, SECTION.replace("rel_err", "rel_eror"), r'rel_eror.*did you mean "rel_err"'),
        (SECTION, SECTION.replace("limit", "limt"), r"limt.*limit"),
        (SECTION, SECTION.replace("1e-5", "nan"), r"\[ac_vs_none.gradient.rel_err\], limit: must be finite"),
        (SECTION, SECTION.replace("1e-5", "inf"), "must be finite"),
        (SECTION, SECTION.replace("1e-5", "-1e-5"), "must not be negative"),
        (SECTION, SECTION.replace("1e-5", "-0.1"), "must not be negative"),
        (SECTION, SECTION.replace("1e-5", '"1e-5"'), "must be a number, not str"),
        (SECTION, SECTION.replace("1e-5", "true"), "must be a number, not bool"),
        (SECTION, SECTION.replace("1e-5", "9" * 400), "must be finite"),
        (SECTION, "[ac_vs_none.gradient]\nrel_err = 1e-5 #", "must be a table, not float"),
        (SECTION, "[ac_vs_none.gradient]\nrel_err = { limit = 1e-5 } #", "why: is missing"),
        (
            SECTION,
            '[ac_vs_none.gradient]\nrel_err = { limit = 1e-5, why = " ", source = "x" } #',
            "not empty",
        ),
        (SECTION, "[ac_vs_none.gradient]\n#", r"\[ac_vs_none.gradient\], rel_err: is missing"),
        ("[ac_vs_none.gradient]", "[ac_vs_none.gradient]\n[ac_vs_none.gradient]", "not valid TOML"),
        ("schema = 1", "schema = 1\nschema = 1", "not valid TOML"),
        ("schema = 1", "schema = 2", "schema: must be 1"),
        ("schema = 1", "", "schema: is missing"),
        ('dtype = "float32"', 'dtype = "float64"', 'dtype: must be "float32"'),
        ("5.9604644775390625e-8", "5e-7", "unit_roundoff: of float32 is"),
    ],
)
def test_what_is_wrong_is_refused_by_name(tmp_path: Path, old: str, new: str, message: str) -> None:
    """The message carries the file and the rule, and for a misspelling the nearest right spelling."""
    assert old in SOUND
    with pytest.raises(ToleranceError, match=message) as caught:
        load_tolerances(write(tmp_path, SOUND.replace(old, new, 1)), "float32")
    assert "float32.toml" in str(caught.value)


def test_a_cosine_limit_above_two_is_no_limit(tmp_path: Path) -> None:
    """1 - cosine is at most 2."""
    text = SOUND.replace("cosine = { limit = 1e-10", "cosine = { limit = 2.5", 1)
    with pytest.raises(ToleranceError, match="1 - cosine"):
        load_tolerances(write(tmp_path, text), "float32")


def test_a_missing_section_is_refused(tmp_path: Path) -> None:
    """No quantity is judged by a limit that nobody stated."""
    start = SOUND.index("[ac_vs_none.buffer]")
    text = SOUND[:start] + SOUND[SOUND.index("[ac_vs_none.state]") :]
    with pytest.raises(ToleranceError, match=r"\[ac_vs_none\], buffer: is missing"):
        load_tolerances(write(tmp_path, text), "float32")


OVERRIDES = """
[[override]]
select = { fqn = "*.norm.weight" }
[override.ac_vs_none.gradient]
rel_err = { limit = 1e-2, why = "norms", source = "provisional" }
[[override]]
select = { fqn = "layers.0.*", topology = "single" }
[override.ac_vs_none.gradient]
rel_err = { limit = 1e-3, why = "first layer", source = "provisional" }
"""


@pytest.mark.parametrize(
    ("fqn", "topology", "limit"),
    [
        ("layers.1.norm.weight", "single", 1e-2),
        ("layers.0.norm.weight", "single", 1e-3),
        ("layers.0.norm.weight", "fsdp", 1e-2),
        ("layers.0.norm.bias", "fsdp", 1e-5),
    ],
)
def test_later_overrides_win_where_both_globs_match(
    tmp_path: Path, fqn: str, topology: str, limit: float
) -> None:
    """An override holds for its names and topologies, its comparison, quantity and metric only."""
    tolerances = load_tolerances(write(tmp_path, SOUND + OVERRIDES), "float32")
    assert tolerances.limit("ac_vs_none", Quantity.GRADIENT, "rel_err", fqn, topology).limit == limit
    assert tolerances.limit("ac_vs_none", Quantity.GRADIENT, "cosine", fqn, topology).limit == 1e-10
    assert tolerances.limit("topology_vs_single", Quantity.GRADIENT, "rel_err", fqn, topology).limit == 1.5e-5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[override]]\n[override.ac_vs_none.loss]\n", "override 1.*select: is missing"),
        ("[[override]]\nselect = { }\n", "must name fqn, topology or both"),
        ('[[override]]\nselect = { name = "a" }\n', "name.*is unknown"),
        ('[[override]]\nselect = { fqn = "a" }\n', "overrides nothing"),
        ("[override]\n", r"write \[\[override\]\]"),
        (OVERRIDES + OVERRIDES, "override 3.*duplicate"),
    ],
)
def test_overrides_are_read_as_strictly(tmp_path: Path, text: str, message: str) -> None:
    """An override that selects or changes nothing, or repeats another, is a mistake."""
    with pytest.raises(ToleranceError, match=re.compile(message, re.DOTALL)):
        load_tolerances(write(tmp_path, SOUND + text), "float32")


def test_weights_have_no_limit_of_their_own() -> None:
    """Weights are judged by their update: compared with rtol they hide a missing one."""
    with pytest.raises(ValueError, match="no limit"):
        load_tolerances(FILES, "float32").limit("ac_vs_none", Quantity.WEIGHT, "rel_err", "a", "single")


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_any_number_is_a_finite_limit_or_refused(number: float) -> None:
    """No file can state a limit that lets everything pass."""
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        text = "nan" if math.isnan(number) else repr(number)
        path = write(Path(directory), SOUND.replace(SECTION, SECTION.replace("1e-5", text), 1))
        if math.isfinite(number) and number >= 0:
            limit = load_tolerances(path, "float32").limit(
                "ac_vs_none", Quantity.GRADIENT, "rel_err", "a", "single"
            )
            assert limit.limit == number
        else:
            with pytest.raises(ToleranceError):
                load_tolerances(path, "float32")

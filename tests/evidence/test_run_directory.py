"""A run directory keeps one run's evidence and nobody else's."""

from __future__ import annotations

import pytest

from acgate.errors import EvidenceError, OutputError, TargetError, UsageError
from acgate.evidence.names import canonical, canonical_map
from acgate.evidence.paths import safe_name
from acgate.evidence.records import TrackEvidence
from acgate.evidence.run_directory import Manifest, RunDirectory
from acgate.evidence.store import read_record, write_record, write_text
from acgate.plan.cell import Cell
from acgate.spec.models import GateSpec

CELL = Cell(topology="single", precision="float32")


def evidence(nonce: str, name: str = "none") -> TrackEvidence:
    return TrackEvidence(nonce=nonce, name=name, track="none", cell=CELL, steps_wanted=1, micro_steps=1)


def test_a_second_run_in_the_same_directory_is_refused_while_the_first_works(tmp_path):
    """Two runs never share a directory."""
    with RunDirectory.open(tmp_path, GateSpec(), resume=False):
        with pytest.raises(UsageError, match="another acgate works"):
            RunDirectory.open(tmp_path, GateSpec(), resume=False)
    with RunDirectory.open(tmp_path, GateSpec(), resume=False):
        pass


def test_resume_keeps_evidence_and_a_new_run_removes_it(tmp_path):
    """--resume goes on with the same nonce; without it nothing of the old run is left."""
    with RunDirectory.open(tmp_path, GateSpec(), resume=False) as first:
        write_record(first.paths.track(CELL.identifier, "none"), evidence(first.nonce))
        write_text(first.paths.junit, "<stale/>")
    with RunDirectory.open(tmp_path, GateSpec(), resume=True) as again:
        assert again.nonce == first.nonce
        assert set(again.cell(CELL)[0]) == {"none"}
    with RunDirectory.open(tmp_path, GateSpec(), resume=False) as fresh:
        assert fresh.nonce != first.nonce
        assert fresh.cell(CELL) == ({}, {})
        assert not fresh.paths.junit.exists()


def test_version_control_passes_a_run_directory_over(tmp_path):
    """A run directory ignores itself, unless somebody says otherwise in it."""
    with RunDirectory.open(tmp_path / "run", GateSpec(), resume=False):
        pass
    ignored = tmp_path / "run" / ".gitignore"
    assert ignored.read_text() == "*\n"
    ignored.write_text("!junit.xml\n")
    with RunDirectory.open(tmp_path / "run", GateSpec(), resume=False):
        pass
    assert ignored.read_text() == "!junit.xml\n"


def test_runs_below_a_directory_are_named_where_it_holds_none(tmp_path):
    """Pytest keeps the run of each cell in a directory of its own."""
    with pytest.raises(EvidenceError, match=r"is missing$"):
        RunDirectory.read(tmp_path)
    with RunDirectory.open(tmp_path / "pytest" / "single-float32", GateSpec(), resume=False):
        pass
    with pytest.raises(EvidenceError, match=r"; there are .*pytest/single-float32"):
        RunDirectory.read(tmp_path)


def test_a_new_run_leaves_foreign_files_alone(tmp_path):
    """Files that acgate did not write stay, whatever their place."""
    (tmp_path / "single-float32").mkdir()
    foreign = tmp_path / "single-float32" / "notes.json"
    foreign.write_text('{"mine": 1}')
    with RunDirectory.open(tmp_path, GateSpec(), resume=False):
        pass
    assert foreign.exists()


def test_resume_with_other_arguments_says_which_differ(tmp_path):
    """Evidence of one specification never answers for another."""
    with RunDirectory.open(tmp_path, GateSpec(), resume=False):
        pass
    with pytest.raises(UsageError, match="steps"):
        RunDirectory.open(tmp_path, GateSpec(steps=5), resume=True)


def test_evidence_of_another_run_is_passed_over(tmp_path):
    """A nonce that differs is no evidence."""
    with RunDirectory.open(tmp_path, GateSpec(), resume=False) as directory:
        write_record(directory.paths.track(CELL.identifier, "none"), evidence("0123"))
        assert directory.cell(CELL) == ({}, {})
        with pytest.raises(EvidenceError, match="another run"):
            directory.track(CELL, "none")


@pytest.mark.parametrize("keep", [0, 1, 40, -2])
def test_a_truncated_file_is_no_evidence(tmp_path, keep):
    """Half a file never counts."""
    with RunDirectory.open(tmp_path, GateSpec(), resume=False) as directory:
        path = directory.paths.track(CELL.identifier, "none")
        write_record(path, evidence(directory.nonce))
        path.write_bytes(path.read_bytes()[:keep])
        assert directory.cell(CELL) == ({}, {})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (',"end":"end"', ""),
        ('"end":"end"', '"end":"no"'),
        ('"steps_wanted":1', '"steps_wanted":2'),
        ('"early_stop":true', '"early_stop":false'),
        ('"schema":1,', ""),
        ('"name":"none"', '"name":"block","name":"none"'),
        ("}\n", "}"),
        (',"seal":"', ', "seal":"'),
        ('{"schema"', '\xff{"schema"'),
        ('{"schema"', "[" * 100_000),
    ],
)
def test_evidence_that_was_changed_after_it_was_written_is_damaged(tmp_path, old, new):
    """Whatever is edited, removed or damaged in a record, it counts no longer."""
    path = tmp_path / "x.json"
    write_record(path, evidence("ab"))
    assert read_record(path, TrackEvidence, "ab") == evidence("ab")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new), encoding="latin-1")
    with pytest.raises(EvidenceError, match="damaged"):
        read_record(path, TrackEvidence, "ab")


def test_evidence_of_another_schema_is_not_read(tmp_path):
    """What another version of acgate wrote may mean something else."""
    path = tmp_path / "x.json"
    write_record(path, evidence("ab").model_copy(update={"schema_": 2}))
    with pytest.raises(EvidenceError, match="another version of acgate"):
        read_record(path, TrackEvidence, "ab")


@pytest.mark.parametrize(("folder", "name"), [("single-float32", "block"), ("single-bfloat16", "none")])
def test_evidence_answers_only_for_its_own_run(tmp_path, folder, name):
    """A file that was copied over that of another track or cell is no evidence, and a reader says so."""
    cell = CELL.model_copy(update={"precision": folder.removeprefix("single-")})
    with RunDirectory.open(tmp_path, GateSpec(), resume=False) as directory:
        path = directory.paths.track(folder, name)
        write_record(path, evidence(directory.nonce))
        assert directory.cell(cell) == ({}, {})
        with pytest.raises(EvidenceError, match="wrong place"):
            directory.track(cell, name)
    evidences, problems = RunDirectory.read(tmp_path).cell(cell)
    assert not evidences
    assert "wrong place" in problems[name]


def test_only_the_version_that_began_a_run_goes_on_with_it(tmp_path):
    """Two versions of acgate never share a run."""
    with RunDirectory.open(tmp_path, GateSpec(), resume=False) as directory:
        manifest = Manifest(nonce=directory.nonce, spec=GateSpec(), version="0.0.0")
        write_record(directory.paths.manifest, manifest)
    with pytest.raises(UsageError, match=r"acgate 0\.0\.0 began it"):
        RunDirectory.open(tmp_path, GateSpec(), resume=True)


def test_an_output_directory_that_is_a_file_is_refused(tmp_path):
    """--out FILE is a usage error, before any work."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is a file"):
        RunDirectory.open(tmp_path / "file", GateSpec(), resume=False)


def test_problems_are_read_back(tmp_path):
    """Why a job has no evidence survives the process."""
    with RunDirectory.open(tmp_path, GateSpec(), resume=False) as directory:
        directory.write_problem(CELL, "block", "was killed by SIGKILL")
        assert directory.cell(CELL) == ({}, {"block": "was killed by SIGKILL"})


def test_files_are_for_everybody_whom_the_umask_lets_read_them(tmp_path):
    """A report is read by others than the user that ran the gate."""
    (tmp_path / "usual").touch()
    write_text(tmp_path / "report.xml", "<x/>")
    assert (tmp_path / "report.xml").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_file_name_may_be_as_long_as_names_can_be(tmp_path):
    """The temporary name does not grow with it."""
    path = tmp_path / ("x" * 255)
    write_text(path, "text")
    assert path.read_text() == "text"


def test_a_new_run_removes_what_a_killed_one_was_writing(tmp_path):
    """Half files do not pile up."""
    cell = tmp_path / CELL.identifier
    cell.mkdir()
    leftovers = [tmp_path / ".acgate-12", cell / ".acgate-34", cell / ".none.details.safetensors.part"]
    for path in leftovers:
        path.write_text("half")
    with RunDirectory.open(tmp_path, GateSpec(), resume=False):
        pass
    assert not any(path.exists() for path in leftovers)


def test_reading_a_directory_without_a_run_says_so(tmp_path):
    """`judge` of an empty directory is an error, not a pass."""
    with pytest.raises(EvidenceError, match="holds no acgate run"):
        RunDirectory.read(tmp_path)


def test_a_directory_that_cannot_even_be_looked_for_holds_no_run(tmp_path):
    """A name that no file can have is no internal error."""
    with pytest.raises(EvidenceError, match="cannot be read"):
        RunDirectory.read(tmp_path / ("x" * 5000))


def test_what_cannot_be_removed_is_an_output_error(tmp_path):
    """A directory in the place of a record is somebody else's, and is named."""
    (tmp_path / "survey.json").mkdir()
    with pytest.raises(OutputError, match=r"survey\.json"):
        RunDirectory.open(tmp_path, GateSpec(), resume=False)


def test_the_manifest_round_trips(tmp_path):
    """What was asked is read back as it was."""
    spec = GateSpec(model="m.py", dtypes=("float64",), steps=2)
    write_record(tmp_path / "run.json", Manifest(nonce="n", spec=spec))
    assert read_record(tmp_path / "run.json", Manifest).spec == spec


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "a..b", "x\0"])
def test_model_text_never_becomes_a_path(name):
    """Only plain names are file names."""
    with pytest.raises(ValueError, match="file name"):
        safe_name(name)


def test_wrapper_parts_leave_names_and_collisions_are_errors():
    """The canonical name is the same whatever wraps the module."""
    assert canonical("layers.0._checkpoint_wrapped_module.w") == "layers.0.w"
    with pytest.raises(TargetError, match=r"both 'a\.w'"):
        canonical_map(["a.w", "a._orig_mod.w"])

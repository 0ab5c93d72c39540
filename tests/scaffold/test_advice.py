"""What `acgate init` advises to change in files that it leaves as they are."""

from __future__ import annotations

import pytest

from acgate.scaffold.advice import ignore_advice, pytest_advice


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        (
            "pyproject.toml",
            '[tool.pytest.ini_options]\ntestpaths = ["tests", "more"]\n',
            '["tests", "more", "acgate.toml"]',
        ),
        ("pyproject.toml", '[tool.pytest]\ntestpaths = ["tests"]\n', '["tests", "acgate.toml"]'),
        (
            "pyproject.toml",
            '[tool.pytest.ini_options]\ntestpaths = "tests more"\n',
            '["tests", "more", "acgate.toml"]',
        ),
        ("pytest.toml", '[pytest]\ntestpaths = ["tests"]\n', '["tests", "acgate.toml"]'),
        ("pytest.ini", "[pytest]\ntestpaths = tests\n    more\n", "tests more acgate.toml"),
        ("tox.ini", "[pytest]\ntestpaths = tests\n", "tests acgate.toml"),
        ("setup.cfg", "[tool:pytest]\ntestpaths = tests\n", "tests acgate.toml"),
    ],
)
def test_testpaths_that_leave_out_the_settings_are_named(make_project, name, text, line):
    """pytest collects only its testpaths: the exact line to write is said, in the file's own syntax."""
    root = make_project({name: text})
    said = pytest_advice(root, "acgate.toml")
    assert said.startswith(f"{name} limits what `pytest` collects")
    assert said.endswith(f"\n    testpaths = {line}")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", '[tool.pytest.ini_options]\ntestpaths = ["tests", "acgate.toml"]\n'),
        ("pyproject.toml", '[tool.pytest.ini_options]\ntestpaths = ["."]\n'),
        ("pyproject.toml", '[tool.pytest.ini_options]\ntestpaths = ["*.toml"]\n'),
        ("pyproject.toml", '[tool.pytest.ini_options]\naddopts = "-ra"\n'),
        ("pyproject.toml", "[project]\n"),
        ("pyproject.toml", "broken ["),
        ("tox.ini", "[tox]\n"),
        ("setup.cfg", "no section\n"),
    ],
)
def test_where_pytest_finds_the_settings_nothing_is_said(make_project, name, text):
    """Without testpaths, or with ones that lead to the settings, there is nothing to change."""
    assert pytest_advice(make_project({name: text}), "acgate.toml") == ""


def test_only_the_file_that_pytest_reads_counts(make_project):
    """An empty pytest.ini wins over pyproject.toml, as it does for pytest."""
    limited = '[tool.pytest.ini_options]\ntestpaths = ["tests"]\n'
    root = make_project({"pyproject.toml": limited, "pytest.ini": ""})
    assert pytest_advice(root, "acgate.toml") == ""


def test_results_do_not_belong_under_version_control(make_project):
    """A .gitignore that does not name the run directory is worth a line."""
    root = make_project({".gitignore": "*.pyc\n"})
    assert "acgate-out/" in ignore_advice(root)
    (root / ".gitignore").write_text("/acgate-out/\n")
    assert ignore_advice(root) == ""
    (root / ".gitignore").unlink()
    assert ignore_advice(root) == ""

"""The document of a plan: what will be checked, and on which files that depends."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from acgate.evidence.records import Survey
from acgate.judge.foreseen import foreseen_checks
from acgate.plan.matrix import make_plan
from acgate.report import file_digest as digests
from acgate.report.file_digest import MISSING, file_digest
from acgate.report.plan_document import PlanDocument, plan_document
from acgate.spec.models import GateSpec

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def survey(**fields: object) -> Survey:
    given: dict[str, object] = {
        "nonce": "n",
        "target": "d1",
        "label": "net",
        "source": "net.py",
        "blocks": ("layers.0",),
        "blocks_source": "given",
        "key_layers": (),
        "trainable": ("layers.0.weight",),
        "torch": "2.13.0",
    }
    return Survey(**(given | fields))  # type: ignore[arg-type]


def test_it_names_every_check_of_every_cell_and_comes_back_from_json_as_it_was() -> None:
    """A reader without acgate sees cells, tracks and names of checks, in the order of the report."""
    spec = GateSpec(topologies=("single", "ddp"), dtypes=("float32",), world_size=3)
    plan = make_plan(spec)
    document = plan_document(plan, survey())
    plain = json.loads(document.model_dump_json(by_alias=True))
    assert plain["schema"] == 1
    assert [(cell["cell"], cell["ranks"]) for cell in plain["cells"]] == [
        ("single-float32", 1),
        ("ddp-w3-float32", 3),
    ]
    assert [track["track"] for track in plain["cells"][1]["tracks"]] == ["none", "block", "selective"]
    for cell, shown in zip(plan.cells, plain["cells"], strict=True):
        expected = foreseen_checks(spec, cell, survey())
        assert {track["track"]: tuple(track["checks"]) for track in shown["tracks"]} == expected
    assert PlanDocument.model_validate_json(document.model_dump_json(by_alias=True)) == document


def test_it_has_the_digest_of_every_file_it_depends_on(tmp_path: Path) -> None:
    """What the survey read and what the plan was made from are told alike; an edit of either shows."""
    model, policy = tmp_path / "model.py", tmp_path / "policy.toml"
    model.write_bytes(b"a")
    policy.write_bytes(b"b")
    plan = make_plan(GateSpec(dtypes=("float32",)))
    found = survey(sources=(str(model),))
    before = plan_document(plan, found, (policy,)).sources
    assert before == {
        str(model): hashlib.sha256(b"a").hexdigest(),
        str(policy): hashlib.sha256(b"b").hexdigest(),
    }
    policy.write_bytes(b"c")
    after = plan_document(plan, found, (policy,)).sources
    assert [path for path in before if before[path] != after[path]] == [str(policy)]


def test_a_file_that_is_gone_has_a_digest_of_its_own(tmp_path: Path) -> None:
    """No file has the digest of one that is missing, so a plan that names it does not hold."""
    assert file_digest(tmp_path / "nowhere.py") == file_digest(tmp_path) == MISSING


def test_of_large_weights_only_size_and_header_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A survey depends on no weight, so gigabytes are not read; the digest says what it covers."""
    header = b'{"w":{"dtype":"F32"}}'
    content = len(header).to_bytes(8, "little") + header + bytes(100)
    weights, other = tmp_path / "model.safetensors", tmp_path / "model.py"
    weights.write_bytes(content)
    assert file_digest(weights) == hashlib.sha256(content).hexdigest()
    monkeypatch.setattr(digests, "WHOLE", 64)
    large = file_digest(weights)
    assert large.startswith("size-and-header:")
    weights.write_bytes(content[:-1] + b"1")
    assert file_digest(weights) == large
    weights.write_bytes(content + b"1")
    assert file_digest(weights) != large
    weights.write_bytes(content.replace(b"F32", b"F16"))
    assert file_digest(weights) != large
    other.write_bytes(content)
    assert file_digest(other) == hashlib.sha256(content).hexdigest()

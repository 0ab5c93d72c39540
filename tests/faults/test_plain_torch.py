"""Plain torch, without acgate, agrees with what each fixture says about itself."""

from __future__ import annotations

import pytest
from fault_verdicts import DEFAULT_PRECISION, FIXTURES

from fixtures import catalog
from fixtures.plain_torch import differing, strict_kernels, train

# By default every fourth, in the precision in which the gate judges it by default.
CASES = [
    pytest.param(
        path,
        precision,
        id=f"{path.stem}-{precision}",
        marks=[pytest.mark.slow] if expect.slow or number % 4 or precision != DEFAULT_PRECISION[path] else [],
    )
    for number, (path, expect) in enumerate(FIXTURES)
    for precision in expect.precisions
]


@pytest.mark.parametrize(("path", "precision"), CASES)
def test_fixture_is_what_it_says(path, precision):
    """Faulty tracks differ from none or raise, all other tracks equal it bit for bit."""
    expect = catalog.load(path).EXPECT
    with strict_kernels():
        reference = train(path, "none", precision)
        again = train(path, "none", precision)
        tracks = {track: train(path, track, precision) for track in expect.tracks_in(precision)}
    assert reference.raised is None, f"the reference raises {reference.raised!r}"
    noisy = differing(reference, again)
    if expect.noisy:
        assert noisy or precision == "bfloat16", "this reference must not repeat itself"
        return
    assert not noisy
    for track, trace in tracks.items():
        different = differing(reference, trace)
        if track in expect.faulty_tracks and expect.numbers_differ:
            assert different or trace.raised, f"{track} equals none bit for bit"
        else:
            assert trace.raised is None, f"{track} raises {trace.raised!r}"
            assert not different, f"{track} differs: {different[:5]}"
    raised = [type(trace.raised).__name__ for trace in tracks.values() if trace.raised is not None]
    if expect.raises:
        assert any(name.endswith(expect.raises) for name in raised), f"raised {raised}"

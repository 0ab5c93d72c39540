from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acgate.judge.verdict import Case, Difference, Verdict
from acgate.report import json_document
from acgate.vocabulary import Outcome

Make = Callable[..., Verdict]
MakeCase = Callable[..., Case]
MakeDifference = Callable[..., Difference]


def strict(text: str) -> object:
    def refuse(word: str) -> object:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e-300, 0.1])
def test_numbers_that_json_lacks_are_read_back(
    verdict: Make, case: MakeCase, difference: MakeDifference, value: float
) -> None:
    """Strict parsers read the document, and acgate reads the number back."""
    made = verdict(case(Outcome.FAIL, differences=(difference("w", value),)), outcome=Outcome.FAIL)
    document = strict(json_document.render(made))
    back = Verdict.model_validate(document).cells[0].tracks[0].cases[0].differences[0].rel_err
    assert back == value or (math.isnan(back) and math.isnan(value))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_any_text_is_strict_json(verdict: Make, case: MakeCase, text: str) -> None:
    """Also lone surrogates, which some parsers refuse even when escaped."""
    made = verdict(case(Outcome.FAIL, text=text, place=text), outcome=Outcome.FAIL, dropped={text: text})
    document = json_document.render(made)
    assert document.isascii()
    json.dumps(strict(document), ensure_ascii=False).encode()


def test_a_verdict_survives_the_round_trip(verdict: Make, case: MakeCase, difference: MakeDifference) -> None:
    """Nothing is lost: the document can be judged by other programs."""
    made = verdict(*(case(outcome, differences=(difference("w", 0.25),)) for outcome in Outcome))
    assert Verdict.model_validate(strict(json_document.render(made))) == made

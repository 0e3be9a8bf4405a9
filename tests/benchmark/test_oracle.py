"""The paper's case list, line by line, as a truth table."""

import itertools

import numpy as np

from assay.benchmark import Outcome, overall_outcome, specific_outcome

TP, FP, TN, FN = Outcome

# (fault, correct, alarm) -> (specific, overall), read off Section III.C from top to bottom.
PAPER = {
    (False, True, True): (FP, FP),
    (False, False, True): (FP, TP),
    (False, True, False): (TN, TN),
    (False, False, False): (TN, FN),
    (True, True, True): (TP, FP),
    (True, False, True): (TP, TP),
    (True, True, False): (FN, TN),
    (True, False, False): (FN, FN),
}


def outcomes(*case):
    flags = [np.array([flag]) for flag in case]
    return Outcome(specific_outcome(*flags)[0]), Outcome(overall_outcome(*flags)[0])


def test_every_case_of_the_paper_has_its_outcome():
    for (fault, correct, alarm), expected in PAPER.items():
        assert outcomes(fault, False, correct, alarm) == expected


def test_a_novelty_is_always_worth_an_alarm_whatever_was_predicted():
    for correct in (True, False):
        assert outcomes(True, True, correct, True) == (TP, TP)
        assert outcomes(True, True, correct, False) == (FN, FN)


def test_known_inputs_of_a_novelty_stream_follow_the_usual_rules():
    for correct, alarm in itertools.product((True, False), repeat=2):
        assert outcomes(False, True, correct, alarm) == PAPER[False, correct, alarm]


def test_all_sixteen_cases_at_once_agree_with_one_at_a_time():
    table = np.array(list(itertools.product((True, False), repeat=4)))
    specific, overall = specific_outcome(*table.T), overall_outcome(*table.T)
    assert [(Outcome(a), Outcome(b)) for a, b in zip(specific, overall, strict=True)] == [
        outcomes(*case) for case in table
    ]


def test_the_arrays_given_are_left_alone():
    flags = [np.array([True, False]) for _ in range(4)]
    overall_outcome(*flags)
    specific_outcome(*flags)
    assert all(flag.tolist() == [True, False] for flag in flags)

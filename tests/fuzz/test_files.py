"""Mutated robot files are refused in words, or load and step as in MuJoCo."""

import ukemi as uk
from tests.fuzz import files


def test_mutated_files_are_refused_in_words_or_load_and_step():
    findings, tally = files.tally(seed=0, count=300, steps=12)
    assert not findings, findings
    assert tally.refused > 50 and tally.loaded > 50 and tally.stepped >= 12


def test_the_fuzzer_sees_what_is_wrong(monkeypatch):
    def raw(xml):
        raise ZeroDivisionError("integer modulo by zero")

    def vague(xml):
        raise uk.ModelFileError("that was not good enough to load")

    for load, what in ((raw, "ZeroDivisionError from uk.load"), (vague, "refused in words that name nothing")):
        monkeypatch.setattr(uk, "load", load)
        assert files.examine("<mujoco/>", None)[0] == what

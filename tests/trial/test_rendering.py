"""What a trial prints: nothing of a node, a log or a report reaches the terminal as it came."""

import json

from netdoctor.trial.following import Follower
from netdoctor.trial.judging import Ended, Judgement, State
from netdoctor.trial.rendering import Cause, TrialResult, lines, to_json
from tests.hostile import HOSTILE


def result(text: str) -> TrialResult:
    job = Follower(["n0"], [1])
    job.networks["n0"] = {text: 1}
    job.addresses["n0"] = {text: 1}
    return TrialResult(
        job=job,
        judgement=Judgement(state=State.FAILED, headline=text, found=(text,), nodes=("n0",)),
        ended=Ended.JOB,
        seconds=3.0,
        command=(text,),
        logs="logs",
        causes=(Cause(title=text, sure="likely", source=text, fixes=(f"{text}\n{text}",)),),
        planned={"n0": "10.0.0.1"},
    )


def test_hostile_text_is_inert() -> None:
    for text in HOSTILE.values():
        shown = "\n".join(lines(result(text), 80))
        assert not [c for c in shown if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160], repr(text)
        assert json.loads(json.dumps(to_json(result(text))))["command"] == [text]


def test_lines_fit_but_for_what_is_pasted() -> None:
    text = " ".join(["word"] * 60)
    shown = list(lines(result(text), 80))
    assert [line for line in shown if len(line) > 80] == [f"  {text}"]

from netdoctor.model import CONSTANT, HERE, PEERS, Cause, Fix, after_reboot, at, run, seen, skip, unknown


def test_a_command_that_could_not_be_quoted_is_left_out() -> None:
    assert run("correct the name", "").commands == ()
    assert [one.shell for one in run("look", "a", "", "b").commands] == ["a", "b"]


def test_after_a_reboot() -> None:
    assert after_reboot("install it") == Fix(
        text="install it",
        root=True,
        reboot=True,
        effect="after reboot",
        risk="medium",
        loses="whatever runs there, at the restart",
    )
    assert after_reboot("make it anew", risk="low").risk == "low"


def test_an_expectation_says_where_it_comes_from() -> None:
    slow = Cause("slow", "{nodes} {is} slow")
    said = [slow.fail("slow", expected=expected) for expected in ("fast", PEERS("fast"), None)]
    assert [(one.expected, one.expected_from) for one in said] == [
        ("fast", CONSTANT),
        ("fast", PEERS),
        (None, None),
    ]


def test_what_is_said_of_here_is_said_of_a_node() -> None:
    slow = Cause("slow", "{nodes} {is} slow").warn("slow", seen=seen("rate"), fixes=run("mend it", "mend"))
    warned, silent, apart = at("n1", [slow, unknown(HERE, "no rate"), skip("no port")])
    assert [one.target for one in (warned, silent, apart)] == ["n1"] * 3
    assert warned.cause is not None
    assert warned.cause.culprits == ("n1",)
    assert warned.evidence[0].where == warned.cause.fixes[0].commands[0].run_on == "n1"

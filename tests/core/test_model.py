from netdoctor.model import Fix, after_reboot, run


def test_a_command_that_could_not_be_quoted_is_left_out() -> None:
    assert run("correct the name", "").commands == ()
    assert [one.shell for one in run("look", "a", "", "b").commands] == ["a", "b"]


def test_after_a_reboot() -> None:
    assert after_reboot("install it") == Fix(
        text="install it", root=True, reboot=True, effect="after reboot", risk="medium"
    )
    assert after_reboot("make it anew", risk="low").risk == "low"

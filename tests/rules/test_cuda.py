import pytest

from netdoctor.rules.cuda import has_compat, major, needed_by_gpus, suits_every_gpu


@pytest.mark.parametrize(("text", "number"), [("12.4", 12), ("9.0", 9), (None, None), ("?", None)])
def test_major(text: str | None, number: int | None) -> None:
    assert major(text) == number


def test_a_family_may_need_a_newer_driver_than_the_toolkit() -> None:
    assert needed_by_gpus((550, 54, 14), ["9.0", "10.0"]) == ("Blackwell", (570,))
    assert needed_by_gpus((550, 54, 14), ["9.0", None]) is None
    assert not suits_every_gpu((550, 54, 14))
    assert suits_every_gpu((570,))


def test_compat_shows_in_what_libcuda_offers() -> None:
    assert has_compat((12, 8), (12, 8))
    assert not has_compat((12, 8), (12, 4))
    assert not has_compat((12, 8), None)

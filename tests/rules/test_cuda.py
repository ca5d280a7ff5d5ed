import pytest

from netdoctor.rules.cuda import build_with, code_for, has_compat, major, needed_by_gpus, suits_every_gpu


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


# As the wheels 2.4.1+cu121, 2.9.1+cu128 and 2.11.0+cu130 have them in libtorch_python.so.
CU121 = ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]
CU128 = ["sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]
CU130 = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]


@pytest.mark.parametrize(
    ("archs", "capability", "how"),
    [
        (CU121, (9, 0), "binary"),
        (CU121, (8, 9), "binary"),  # Ada: that of 8.6
        (CU121, (8, 0), "binary"),
        (CU121, (6, 1), "binary"),
        (CU121, (10, 0), ""),  # B200 on a wheel from before it
        (CU121, (12, 0), ""),
        (CU128, (10, 3), "binary"),  # B300: that of 10.0
        (CU128, (12, 1), "binary"),
        (CU128, (7, 0), "binary"),
        (CU130, (7, 0), ""),  # V100
        (CU130, (11, 0), ""),
        (["sm_86"], (8, 0), ""),
        (["sm_90", "compute_90"], (10, 0), "ptx"),
        (["compute_90"], (9, 0), "ptx"),
        (["compute_90"], (8, 9), ""),
        (["sm_90a", "compute_90a"], (10, 0), ""),
        (["sm_90a"], (9, 0), "binary"),
        (["sm_100f"], (10, 3), "binary"),
        (["compute_100f"], (12, 0), ""),
        (["sm_100a"], (10, 3), ""),
        (["rubbish", "sm_"], (9, 0), ""),
        ([], (9, 0), ""),
    ],
)
def test_code_for_a_gpu(archs: list[str], capability: tuple[int, int], how: str) -> None:
    assert code_for(archs, capability) == how


def test_which_build_to_take() -> None:
    assert "12.8" in build_with((10, 0))
    assert "12.6" in build_with((7, 0))
    assert build_with((8, 0)) == build_with((3, 7)) == ""

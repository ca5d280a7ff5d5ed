import pytest

from netdoctor.rules.pci import Distance, distance

# Two host bridges; below the first a switch with two more behind it, and a card in a slot of its own.
BRIDGE, PORT = "pci0000:10", "0000:10:01.0"
UP = "0000:11:00.0"
PLACES = {
    "a": (BRIDGE, PORT, UP, "0000:12:00.0", "0000:13:00.0"),
    "b": (BRIDGE, PORT, UP, "0000:12:01.0", "0000:14:00.0"),
    "deeper": (BRIDGE, PORT, UP, "0000:12:02.0", "0000:15:00.0", "0000:16:00.0", "0000:17:00.0"),
    "beside it": (BRIDGE, PORT, UP, "0000:12:02.0", "0000:15:00.0", "0000:16:01.0", "0000:18:00.0"),
    "slot": (BRIDGE, "0000:10:02.0", "0000:20:00.0"),
    "other": ("pci0000:80", "0000:80:01.0", "0000:81:00.0"),
    "guest's": ("pci0000:00", "0000:00:05.0"),
    "guest's too": ("pci0000:00", "0000:00:06.0"),
}


@pytest.mark.parametrize(
    ("one", "two", "wanted"),
    [
        ("a", "b", Distance.PIX),
        ("deeper", "beside it", Distance.PIX),
        ("a", "deeper", Distance.PXB),
        ("a", "slot", Distance.PHB),
        ("guest's", "guest's too", Distance.PHB),
        ("a", "other", Distance.NODE),
    ],
)
def test_words_of_nvidia_smi(one: str, two: str, wanted: Distance) -> None:
    a, b = PLACES[one], PLACES[two]
    assert distance(a, b, 0, 0) is distance(b, a, 0, 0) is wanted


@pytest.mark.parametrize(
    ("numa", "wanted"),
    [((0, 1), Distance.SYS), ((1, 1), Distance.NODE), ((-1, 1), Distance.NODE), ((None, 1), Distance.NODE)],
)
def test_between_host_bridges_the_numa_nodes_tell(numa: tuple[int | None, int], wanted: Distance) -> None:
    assert distance(PLACES["a"], PLACES["other"], *numa) is wanted


def test_one_switch_is_nearer_than_any_numa_node() -> None:
    assert distance(PLACES["a"], PLACES["b"], 0, 1) is Distance.PIX

"""Whatever has a figure or a claim from elsewhere says from where, in a form that a reader can open."""

import re
from collections.abc import Iterator

from netdoctor.engine.registry import load_builtin
from netdoctor.rules import boards, leftovers, libraries, profiles

# A document or a file, not the front page of a site; of a repository which file, issue or page.
LINK = re.compile(r"https://[a-z0-9-]+(\.[a-z0-9-]+)+/[\w./?=&%@+~#:,-]+")
FRONT = re.compile(r"https://[^/]+/?")
REPOSITORY = re.compile(r"https://github\.com/[^/]+/[^/]+(/(blob|tree|wiki|issues|pull|discussions)/.+)?")


def sources() -> Iterator[tuple[str, str]]:
    for board in boards._ROWS:
        yield f"board {board.name}", board.source
    for profile in profiles.PROFILES:
        yield f"profile {profile.name}", profile.source
    for leftover in leftovers.LEFTOVERS:
        yield f"leftover {leftover.name}", leftover.source
    for pinned in libraries.PINNED:
        yield f"pinned {pinned.name}", pinned.source
    for check in load_builtin().values():
        if check.source is not None:
            yield f"check {check.id}", check.source


def test_every_entry_has_a_source_that_can_be_opened() -> None:
    found = dict(sources())
    assert len(found) > 120
    bad = {
        what: link
        for what, link in found.items()
        if not LINK.fullmatch(link)
        or FRONT.fullmatch(link)
        or (link.startswith("https://github.com/") and not REPOSITORY.fullmatch(link))
    }
    assert not bad
    for link in (
        "https://docs.nvidia.com/",
        "http://docs.nvidia.com/x",
        "from memory",
        "https://github.com/a",
    ):
        plain = LINK.fullmatch(link) and not FRONT.fullmatch(link)
        assert not plain or not (link.startswith("https://github.com/") and REPOSITORY.fullmatch(link)), link


def test_figures_fit_each_other() -> None:
    """No board of a later kind is below its predecessor; a profile has an NVSwitch for several GPUs."""
    known = {board.name: board for board in boards._ROWS}
    order = ["T4", r"V100-SXM\S*", r"A100-SXM\S*-80GB", "H100 80GB HBM3", "B200", "GB200"]
    rates = [known[name] for name in order]
    assert rates == sorted(rates, key=lambda board: (board.tflop_s, board.gbyte_s))
    # 0 where nobody publishes products; GB10 has the processor's memory.
    assert all(board.tflop_s > 60 or not board.tflop_s for board in known.values())
    assert all(board.gbyte_s >= 270 for board in known.values())
    for profile in profiles.PROFILES:
        assert profile.least <= profile.has["gpu.count"] <= 2 * profile.least
        assert profile.has["rdma.hcas"] >= 4

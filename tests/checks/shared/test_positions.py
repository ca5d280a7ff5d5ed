from netdoctor.checks._shared.positions import KEY_LETTERS, cause_at
from netdoctor.model import Cause

FULL = Cause("disk-full", "{where} is full on {nodes}")
LONG = "/mnt/scratch/projects/a-team/of-many/people/and/their/data"


def key(path: str) -> str:
    return cause_at(FULL, path).key


def test_two_paths_never_share_a_key() -> None:
    paths = (
        *("/", "/root", "~/root", "/data", "/Data", "/data/", "/data/x", "/data-x", "/data_x", "data/x"),
        *("é", "?", LONG, f"{LONG}2", f"{LONG}/x", LONG.upper()),
    )
    assert len({key(path) for path in paths}) == len(paths)
    assert all(len(key(path)) <= len("disk-full-") + KEY_LETTERS + 9 for path in paths)
    assert all(set(key(path)) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for path in paths)


def test_a_plain_path_stands_as_it_is() -> None:
    assert [key(path) for path in ("/", "/data", "/mnt/data2")] == [
        "disk-full-root", "disk-full-data", "disk-full-mnt-data2",
    ]  # fmt: skip
    assert key(LONG) == key(LONG)
    assert key("/mnt/my-data").startswith("disk-full-mnt-my-data-")

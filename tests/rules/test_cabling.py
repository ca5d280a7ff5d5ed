from netdoctor.rules.cabling import End, cabling, odd_ones


def ends(count: int, *crossed: int) -> dict[str, list[End]]:
    """Two rails, the networks of which some nodes have the other way round."""
    return {
        f"n{i}": [End(f"mlx5_{rail}:1", f"10.{rail ^ (i in crossed)}.0.0/16") for rail in range(2)]
        for i in range(count)
    }


def test_crossed_nodes_are_named_in_small_clusters_and_in_large_ones() -> None:
    for count in (4, 16, 17, 200):
        assert not cabling(ends(count)).crossed
        for odd in (0, 1, count // 2, count - 1):
            found = cabling(ends(count, odd))
            assert (odd_ones(found), found.is_ring) == ((f"n{odd}",), False), (count, odd)
    assert set(odd_ones(cabling(ends(2, 1)))) == {"n0", "n1"}


def test_pairs_grow_with_the_nodes() -> None:
    few, many = (len(cabling(ends(count)).shared) for count in (100, 400))
    assert many < 4.1 * few


def test_two_leaves_are_no_ring() -> None:
    """Of two nodes each, routed to each other."""
    leaves = {
        f"n{i}": [End(f"mlx5_{rail}:1", f"10.{rail}.{i // 2}.0/24") for rail in range(2)] for i in range(4)
    }
    found = cabling(leaves)
    assert (found.is_ring, found.crossed, dict(found.lonely)) == (False, [], {})

"""NCCL's choice of HCA ports and GIDs against a table of cases read from its source."""

from dataclasses import replace

import pytest

from netdoctor.facts.rdma import Gid, Hca, HcaPort
from netdoctor.rules import nccl_ib as rules
from netdoctor.rules.variables import Setting, Source

from .machines import NEW


def hca(name: str, *states: str, layer: str = "InfiniBand", ok: bool | None = True) -> Hca:
    ports = tuple(
        HcaPort(
            name=f"{name}:{i}",
            number=i,
            state=state,
            phys_state="LinkUp",
            link_layer=layer,
            rate_gbit_s=400.0,
        )
        for i, state in enumerate(states or ("ACTIVE",), start=1)
    )
    return Hca(name=name, ports=ports, uverbs_ok=ok)


@pytest.mark.parametrize(
    ("value", "selected"),
    [
        (None, ["mlx5_0:1", "mlx5_1:1", "mlx5_1:2", "mlx5_10:1"]),
        ("", ["mlx5_0:1", "mlx5_1:1", "mlx5_1:2", "mlx5_10:1"]),
        ("mlx5_1", ["mlx5_1:1", "mlx5_1:2", "mlx5_10:1"]),
        ("=mlx5_1", ["mlx5_1:1", "mlx5_1:2"]),
        ("=mlx5_1:2", ["mlx5_1:2"]),
        ("mlx5_0:1,mlx5_1:1", ["mlx5_0:1", "mlx5_1:1", "mlx5_10:1"]),
        ("^mlx5_1", ["mlx5_0:1"]),
        ("^=mlx5_1", ["mlx5_0:1", "mlx5_10:1"]),
        ("^=mlx5_1:2", ["mlx5_0:1", "mlx5_1:1", "mlx5_10:1"]),
        ("^", []),
        ("^=", []),
        ("eth0", []),
        ("mlx5_0, mlx5_1", ["mlx5_0:1"]),
        ("=mlx5_0:1:0:0", ["mlx5_0:1"]),
        ("=mlx5_1::0", ["mlx5_1:1", "mlx5_1:2"]),
        ("=mlx5_1:x", []),
    ],
)
def test_hca_filter(value: str | None, selected: list[str]) -> None:
    hcas = (hca("mlx5_0"), hca("mlx5_1", "ACTIVE", "ACTIVE"), hca("mlx5_10"))
    assert [port.name for _, port in rules.selected_ports(hcas, value)] == selected
    assert rules.selected_ports(hcas, "=mlx5_1:", (2, 30, 4)) == []


def test_only_active_ports_of_devices_that_open() -> None:
    hcas = (hca("a", "INIT"), hca("b", "DOWN"), hca("c", ok=False), hca("d", layer="Unknown"), hca("e"))
    assert [port.name for _, port in rules.selected_ports(hcas, None)] == ["e:1"]


def test_names_what_a_prefix_drags_in() -> None:
    hcas = (hca("mlx5_1"), hca("mlx5_10"), hca("mlx5_11"))
    assert rules.prefix_surprises(hcas, "mlx5_1") == {"mlx5_1": ["mlx5_10", "mlx5_11"]}
    assert rules.prefix_surprises(hcas, "=mlx5_1") == {}
    assert rules.prefix_surprises(hcas, "mlx5") == {}


# --- GIDs ----------------------------------------------------------------------------------------

USUAL = (
    Gid(index=0, gid="fe80::1", type="IB/RoCE v1"),
    Gid(index=1, gid="fe80::1", type="RoCE v2"),
    Gid(index=2, gid="::ffff:10.0.0.1", type="IB/RoCE v1"),
    Gid(index=3, gid="::ffff:10.0.0.1", type="RoCE v2"),
    Gid(index=5, gid="::ffff:10.9.0.1", type="RoCE v2"),
)


@pytest.mark.parametrize(
    ("gids", "env", "version", "index"),
    [
        pytest.param(USUAL, {}, NEW, 3, id="first v4 over RoCE v2"),
        pytest.param(USUAL, {}, (2, 20, 5), 0, id="zero before 2.21"),
        pytest.param(USUAL, {"NCCL_IB_GID_INDEX": "1"}, NEW, 1, id="forced"),
        pytest.param(USUAL, {"NCCL_IB_GID_INDEX": "-1"}, NEW, 3, id="minus one is unset"),
        pytest.param(USUAL, {"NCCL_IB_GID_INDEX": "9"}, NEW, 9, id="forced blindly"),
        pytest.param(USUAL[:2], {}, NEW, 0, id="no IPv4 is index zero"),
        pytest.param(USUAL, {"NCCL_IB_ADDR_RANGE": "10.9.0.0/16"}, NEW, 5, id="range"),
        pytest.param(USUAL, {"NCCL_IB_ADDR_RANGE": "10.8.0.0/16"}, NEW, 0, id="range without match"),
        pytest.param(USUAL, {"NCCL_IB_ADDR_RANGE": "10.8.0.0"}, NEW, 3, id="range without a length"),
        pytest.param(USUAL, {"NCCL_IB_ADDR_RANGE": "fd00::/8"}, NEW, 3, id="range of the other family"),
        pytest.param(USUAL, {"NCCL_IB_ADDR_RANGE": "10.8.0.0/x"}, NEW, 3, id="range of all"),
        pytest.param(USUAL[2:], {"NCCL_IB_ADDR_FAMILY": "AF_INET6"}, NEW, 0, id="an empty row is IPv6"),
        pytest.param(
            (replace(USUAL[3], index=0), replace(USUAL[3], index=2)),
            {"NCCL_IB_ADDR_FAMILY": "AF_INET6"},
            NEW,
            1,
            id="an empty row in place of IPv4",
        ),
        pytest.param(USUAL, {"NCCL_IB_GID_INDEX": "x"}, (2, 31, 2), 0, id="no number is zero"),
        pytest.param(USUAL, {"NCCL_IB_GID_INDEX": "x"}, (2, 32, 3), 3, id="no number is unset"),
        pytest.param(USUAL, {"NCCL_IB_ROCE_VERSION_NUM": "1"}, NEW, 2, id="RoCE v1 asked for"),
        pytest.param(USUAL[3:], {}, NEW, 3, id="gap at zero"),
        pytest.param(
            (USUAL[0], Gid(index=1, gid="fd00::1", type="RoCE v2")),
            {"NCCL_IB_ADDR_FAMILY": "AF_INET6"},
            NEW,
            1,
            id="IPv6 fabric",
        ),
    ],
)
def test_gid_index(gids: tuple[Gid, ...], env: dict[str, str], version: tuple[int, ...], index: int) -> None:
    port = replace(hca("mlx5_0", layer="Ethernet").ports[0], gids=gids)
    assert rules.choose_gid_index(port, env, version) == index


def test_a_table_without_end_is_not_walked() -> None:
    port = replace(hca("mlx5_0", layer="Ethernet").ports[0], gids=USUAL, gid_table_len=1 << 50)
    assert rules.choose_gid_index(port, {}, NEW) == 3
    assert rules.choose_gid_index(port, {"NCCL_IB_ADDR_FAMILY": "AF_INET6"}, NEW) in (0, 1)


def test_an_index_beyond_the_table_ends_the_transport() -> None:
    port = replace(hca("mlx5_0", layer="Ethernet").ports[0], gids=USUAL, gid_table_len=16)
    assert not rules.gives_up_over_index(port, 15, None)
    assert rules.gives_up_over_index(port, 16, None)
    assert not rules.gives_up_over_index(port, 16, (2, 30, 7))


def test_infiniband_ignores_the_index() -> None:
    port = replace(hca("mlx5_0").ports[0], gids=USUAL)
    assert rules.choose_gid_index(port, {"NCCL_IB_GID_INDEX": "3"}, NEW) == 0


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({}, None),
        ({"NCCL_IB_DISABLE": "true", "NCCL_NET": "IB"}, None),
        ({"NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket"}, "NCCL_IB_DISABLE"),
        ({"NCCL_NET": "Socket"}, "NCCL_NET"),
    ],
)
def test_what_switches_the_hcas_off(env: dict[str, str], name: str | None) -> None:
    assert rules.switched_off_by(env) == name


def test_choices_say_what_asked_for_the_row() -> None:
    port = HcaPort(
        name="mlx5_0:1",
        number=1,
        state="ACTIVE",
        phys_state="LinkUp",
        link_layer="Ethernet",
        rate_gbit_s=400.0,
        gids=(Gid(index=0, gid="fe80::1"), Gid(index=3, gid="::ffff:10.0.0.1", type="RoCE v2")),
    )
    hcas = [Hca(name="mlx5_0", ports=(port,)), hca("mlx5_1")]  # on InfiniBand there is nothing to choose
    (free,) = rules.choose_gids(hcas, {}, NEW)
    assert (free.index, free.gid, free.forced, free.too_old) == (3, port.gids[1], False, False)
    (old,) = rules.choose_gids(hcas, {}, (2, 20))
    assert (old.index, old.is_link_local, old.too_old, old.good) == (0, True, True, (port.gids[1],))
    asked = {"NCCL_IB_GID_INDEX": Setting("NCCL_IB_GID_INDEX", "9", "train.env:1", Source.JOB)}
    (forced,) = rules.choose_gids(hcas, asked, (2, 20))
    assert (forced.index, forced.gid, forced.forced, forced.too_old) == (9, None, True, False)
    assert forced.setting is asked["NCCL_IB_GID_INDEX"]


def test_a_routable_flid_on_infiniband() -> None:
    gids = (Gid(index=0, gid="fe80::1"), Gid(index=1, gid="fd00:0:7::1"))
    port = replace(hca("mlx5_0").ports[0], gids=gids)
    assert rules.choose_gid_index(port, {}, NEW) == 1
    assert rules.choose_gid_index(port, {"NCCL_IB_ROUTABLE_FLID_GID_INDEX": "0"}, NEW) == 0
    assert rules.choose_gid_index(port, {}, (2, 21, 5)) == 0

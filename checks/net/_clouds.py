"""What a cloud has in the place of switches and their ACLs, where no node is the culprit."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from netdoctor import tables
from netdoctor.facts.host import HostFacts
from netdoctor.model import CONTROL, Fix, look, run


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """A row of the table, in which the fields are explained."""

    let: str
    shell: str
    see: str = ""
    mtu: str = ""
    see_mtu: str = ""
    sources: tuple[str, ...]


CLOUDS = tables.table("netdoctor.checks.net", "clouds.toml", dict[str, Cloud])


def of_nodes(nodes: Iterable[str], hosts: Mapping[str, HostFacts] | None) -> Cloud | None:
    """The cloud that all of these nodes are in; None for none, for several, and where that is not known."""
    names = {hosts[node].cloud if hosts and node in hosts else None for node in nodes}
    return CLOUDS.get(names.pop() or "") if len(names) == 1 else None


def let_in(cloud: Cloud | None) -> tuple[Fix, ...]:
    """How peers are let through, by what the provider has between nodes."""
    if cloud is None:
        return ()
    act = run(cloud.let, cloud.shell, on=CONTROL, widens="all traffic between the nodes")
    return (act, look("see what the security list allows", cloud.see, on=CONTROL)) if cloud.see else (act,)


def carry(cloud: Cloud | None) -> Fix | None:
    """What limits packets between machines of the provider; None where its pages do not say."""
    return look(cloud.mtu, cloud.see_mtu, on=CONTROL) if cloud is not None and cloud.mtu else None

"""What a cloud has in the place of switches and their ACLs: rules between nodes, and sizes of packets.

Only where no node is the culprit, and only what the provider's own pages say. Names that only the person
knows are shell variables in the commands, and the shell says which one is not set.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from netdoctor.facts.host import HostFacts
from netdoctor.model import CONTROL, Fix, look, run


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """let: how peers are let in, a text and a command. see: where that says what is let in now, for one whose
    command would need more than a name. mtu: what passes between its machines; see_mtu: a command that says
    what the network is set to. sources: pages of the provider's.
    """

    let: str
    shell: str
    see: str = ""
    mtu: str = ""
    see_mtu: str = ""
    sources: tuple[str, ...]


CLOUDS = {
    "aws": Cloud(
        let="let the security group of the nodes accept all traffic from itself; where they have EFA, also "
        "send all to itself",
        shell='aws ec2 authorize-security-group-ingress --group-id "${SG:?set it to the security group}" '
        '--protocol=-1 --source-group "$SG"',
        mtu="inside of a VPC 9001 bytes pass, over peering between Regions and transit gateways 8500, over "
        "internet gateways and VPNs 1500: see which of them is between the nodes",
        sources=(
            "https://docs.aws.amazon.com/cli/latest/reference/ec2/authorize-security-group-ingress.html",
            "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start.html",
            "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/network_mtu.html",
        ),
    ),
    "gcp": Cloud(
        let="add a firewall rule that lets the nodes' subnet in",
        shell="gcloud compute firewall-rules create nodes-internal "
        '--network "${NETWORK:?set it to the network}" --allow tcp,udp,icmp '
        '--source-ranges "${SUBNET:?set it to the subnet of the nodes}"',
        mtu="the VPC network's own MTU is the limit (1460 bytes unless set, 8896 at most): give the "
        "interfaces that one, or the network theirs (gcloud compute networks update --mtu)",
        see_mtu='gcloud compute networks describe "${NETWORK:?set it to the network}" --format "value(mtu)"',
        sources=(
            "https://cloud.google.com/sdk/gcloud/reference/compute/firewall-rules/create",
            "https://cloud.google.com/vpc/docs/mtu",
        ),
    ),
    "azure": Cloud(
        let="let the network security group accept traffic inside the virtual network",
        shell='az network nsg rule create -g "${GROUP:?set it to the resource group}" '
        '--nsg-name "${NSG:?set it to the security group}" -n nodes-internal --priority 200 '
        "--source-address-prefixes VirtualNetwork --destination-port-ranges '*' "
        "--protocol '*' --access Allow",
        sources=("https://learn.microsoft.com/cli/azure/network/nsg/rule",),
    ),
    "oci": Cloud(
        let="let the network security group of the nodes, where they have one, accept all protocols from "
        "their subnet; else the subnet's security list",
        shell='oci network nsg rules add --nsg-id "${NSG:?set it to the security group}" --security-rules '
        '\'[{"direction": "INGRESS", "protocol": "all", "sourceType": "CIDR_BLOCK", "source": "\'"'
        "${SUBNET:?set it to the subnet of the nodes}\"'\"}]'",
        see='oci network security-list get --security-list-id "${LIST:?set it to the security list}"',
        sources=(
            "https://docs.oracle.com/iaas/tools/oci-cli/latest/oci_cli_docs/cmdref/network/nsg/rules/add.html",
        ),
    ),
}


def of_nodes(nodes: Iterable[str], hosts: Mapping[str, HostFacts] | None) -> Cloud | None:
    """The cloud that all of these nodes are in; None for none, for several, and where that is not known."""
    names = {hosts[node].cloud if hosts and node in hosts else None for node in nodes}
    return CLOUDS.get(names.pop() or "") if len(names) == 1 else None


def let_in(cloud: Cloud | None) -> tuple[Fix, ...]:
    """How peers are let through, by what the provider has between nodes."""
    if cloud is None:
        return ()
    act = run(cloud.let, cloud.shell, on=CONTROL, widens="all traffic between the nodes")
    return (act, look("see what the security list lets in", cloud.see, on=CONTROL)) if cloud.see else (act,)


def carry(cloud: Cloud | None) -> Fix | None:
    """What limits packets between machines of the provider; None where its pages do not say."""
    return look(cloud.mtu, cloud.see_mtu, on=CONTROL) if cloud is not None and cloud.mtu else None

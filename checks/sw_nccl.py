"""The NCCL that torch would load, compared across the cluster."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._parity import differing, python_of, safe_version
from netdoctor.checks._words import listing
from netdoctor.facts.software import Nccl, SoftwareFacts
from netdoctor.model import (
    CauseHint,
    Command,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    fail,
    ok,
    skip,
    unknown,
    warn,
)
from netdoctor.rules.versions import parse_version

_OWN = ("wheel", "torch-bundled")


@check(
    source="https://github.com/NVIDIA/nccl/blob/v2.23.4-1/src/init.cc",
)
def sw_nccl(nodes: Mapping[str, SoftwareFacts]) -> Iterator[Finding]:
    """Every node loads the same NCCL, and it is the one that torch came with.

    Looks at:
        Every libnccl that the job's interpreter could load, in the loader's order: LD_PRELOAD,
        the wheel's, LD_LIBRARY_PATH, the system's; the first one counts.

    Matters because:
        NCCL compares major, minor and patch since 2.23.4 ("Mismatched NCCL version detected"), but
        only after an exchange whose layout changes between releases, so the usual sight is "Message
        truncated" or a hang. The version of torch does not tell: other indexes carry other NCCLs.

    Fix:
        Install the same nvidia-nccl wheel everywhere, and take libnccl out of LD_PRELOAD and
        LD_LIBRARY_PATH.
    """
    first = {node: software.nccl[0] for node, software in nodes.items() if software.nccl}
    if not first:
        yield skip("no NCCL on any node: nothing to compare")
        return
    versions: dict[str, str] = {}
    for node, nccl in first.items():
        version = parse_version(nccl.version)
        if version is None:
            yield unknown(node, f"the version of {nccl.path} could not be read")
        else:
            versions[node] = ".".join(str(part) for part in version[:3])

    for node, software in nodes.items():
        if software.nccl:
            continue
        if software.torch is None or software.torch.cuda is None:
            yield skip("no torch with CUDA on this node, so no NCCL", node)
            continue
        yield fail(
            node,
            f"torch {software.torch.version} finds no libnccl.so.2",
            observed="none",
            expected=next(iter(versions.values()), "libnccl.so.2"),
            expected_from=ExpectedFrom.PEERS,
            cause=CauseHint(
                key="nccl-missing",
                title="{nodes} {has} no NCCL library for torch",
                culprits=(node,),
                fixes=_install(node, software, next(iter(versions.values()), None)),
            ),
        )

    yield from differing(
        versions,
        "NCCL",
        "nccl-version",
        why='the job would hang or end with "Message truncated"',
        fixes=lambda node, wanted: _install(node, nodes[node], wanted),
        evidence=lambda node: _evidence(node, nodes[node]),
    )

    for node, nccl in first.items():
        own = [other for other in nodes[node].nccl[1:] if other.origin in _OWN]
        if nccl.origin in _OWN or not own or own[0].version == nccl.version:
            continue
        yield _overridden(node, nccl, own[0], nodes[node])
    if len(set(versions.values())) == 1:
        for node, text in versions.items():
            yield ok(node, f"NCCL {text}", observed=text)


def _overridden(node: str, nccl: Nccl, own: Nccl, software: SoftwareFacts) -> Finding:
    from_variable = nccl.origin in ("LD_PRELOAD", "LD_LIBRARY_PATH")
    source = nccl.origin if from_variable else "the system"
    fix = Fix(
        text=f"take libnccl out of {source}, so that torch loads the one it was built with",
        commands=(
            (Command(run_on="job", shell=f"unset {nccl.origin}"),)
            if from_variable
            else (Command(run_on=node, shell="ldconfig -p | grep libnccl"),)
        ),
        effect="next launch",
    )
    return warn(
        node,
        f"{source} gives NCCL {nccl.version or '?'} in place of torch's own {own.version or '?'}",
        observed=f"{nccl.version or '?'} from {nccl.origin}",
        expected=f"{own.version or '?'} from the wheel",
        expected_from=ExpectedFrom.DERIVED,
        evidence=_evidence(node, software),
        cause=CauseHint(
            key="nccl-overridden",
            title="{nodes} load{s} another NCCL than the one torch was built with",
            culprits=(node,),
            fixes=(fix,),
        ),
    )


def _evidence(node: str, software: SoftwareFacts) -> tuple[Evidence, ...]:
    found = [f"{n.version or '?'} {n.origin} {n.path}" for n in software.nccl]
    return (Evidence(kind="file", where=node, what="libnccl.so.2 in load order", output=listing(found)),)


def _install(node: str, software: SoftwareFacts, wanted: str | None) -> tuple[Fix, ...]:
    torch = software.torch
    cuda = parse_version(torch.cuda) if torch else None
    version = safe_version(wanted)
    if not cuda or not version:
        return ()
    return (
        Fix(
            text=f"install NCCL {version} in the job's interpreter",
            commands=(
                Command(
                    run_on=node,
                    shell=f"{python_of(software)} -m pip install 'nvidia-nccl-cu{cuda[0]}=={version}'",
                ),
            ),
            effect="next launch",
            risk="medium",
        ),
    )

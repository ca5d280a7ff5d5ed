"""Whether NCCL finds the plugin through which it uses AWS's EFA."""

import re
from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.text import listing
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.software import EnvFacts, Job, SoftwareFacts
from netdoctor.model import LIKELY, SUSPECTED, Cause, Finding, in_job, run, seen, skip
from netdoctor.rules.variables import effective_env
from netdoctor.rules.versions import nccl_version

# What may stand in a command.
FOLDER = re.compile(r"/[A-Za-z0-9_.+/-]{1,200}")
SETTLE = "a job with NCCL_DEBUG=INFO says NET/OFI where it uses EFA, and NET/Socket where it does not"
NONE = Cause("efa-plugin-none", "{nodes} {has} EFA, and no NCCL plugin for it", LIKELY, settle_by=SETTLE)
HIDDEN = Cause(
    "efa-plugin-hidden", "the loader does not find the EFA plugin of {nodes}", SUSPECTED, settle_by=SETTLE
)
INSTALL = run("install EFA's software, whose installer brings the plugin, or run the job in an image with it")


@check(after=["ssh.login", "rdma.hca"], required=False, source="https://github.com/aws/aws-ofi-nccl")
def rdma_efa(
    rdma: RdmaFacts, env: EnvFacts, job: Job, gpu: GpuFacts | None, software: SoftwareFacts | None
) -> Iterator[Finding]:
    """NCCL finds its plugin for EFA on nodes that have EFA devices.

    Looks at:
        libnccl-net.so and libnccl-net-ofi.so in LD_LIBRARY_PATH of the job and the session, and in the
        loader's cache; else in the folders below /opt where AWS's software puts them. Not looked at are nodes
        without NVIDIA GPUs or torch: there the job runs in an image, which brings its own. Names and paths in
        NCCL_NET_PLUGIN are left to NCCL.

    Matters because:
        NCCL has no code for EFA of its own. Without the plugin it takes TCP sockets, without a word, and the
        job runs at a small part of the rate.

    Fix:
        Put the plugin's folder into LD_LIBRARY_PATH, or install EFA's software.
    """
    count = sum(hca.is_efa for hca in rdma.hcas)
    if not count:
        yield skip("no EFA device on this node")
        return
    setting = effective_env(env, job, nccl_version(software))
    named_plugin = setting.get("NCCL_NET_PLUGIN")
    folders = setting["LD_LIBRARY_PATH"].value.split(":") if "LD_LIBRARY_PATH" in setting else []
    plugins = rdma.net_plugins or ()
    if rdma.net_plugins is None:
        yield skip("NCCL's plugins were not looked for")
    elif not (gpu and gpu.devices and software and software.torch):
        yield skip("no NVIDIA GPU, or no torch, that would use EFA here")
    elif named_plugin and named_plugin.value:
        yield skip(f"the plugin is set in NCCL_NET_PLUGIN ({named_plugin.origin})")
    elif not any(plugin.found or plugin.folder in folders for plugin in plugins):
        yield _not_found(count, [plugin.path for plugin in plugins])


def _not_found(count: int, paths: list[str]) -> Finding:
    folder = paths[0].rpartition("/")[0] if paths else ""
    say, where = (HIDDEN, f"in {folder} alone") if folder else (NONE, "nowhere")
    plain = FOLDER.fullmatch(folder) is not None
    line = f'export LD_LIBRARY_PATH={folder}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"' if plain else ""
    show = in_job("have the loader look there", line)
    return say.warn(
        f"{count} EFA device{'s' if count > 1 else ''}, and the plugin that NCCL needs for them is {where}",
        observed=where,
        expected="libnccl-net.so or libnccl-net-ofi.so where the loader looks",
        seen=seen("LD_LIBRARY_PATH, the loader's cache, /opt", listing(paths, 4) or "no libnccl-net*.so"),
        fixes=show if folder else INSTALL,
    )

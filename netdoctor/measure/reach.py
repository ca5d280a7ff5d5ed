"""URLs that somebody named, from every node."""

from netdoctor.facts.mesh import Reach, Reached
from netdoctor.measure.common import ask, read_as, reason, rows
from netdoctor.measure.declare import Context, experiment

ASKING_S = 50.0
# What the job's environment may say of the way there; the rest of it stays here.
CARRIED = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")


@experiment(bound_s=ASKING_S)
def reach(context: Context) -> Reach:
    """Every node asks the URLs of --reach for their head, through the proxy of its environment."""
    urls = context.job.reach
    env = {k: v for k, v in context.job.env.items() if k.lower() in CARRIED or k in BUNDLES}
    args = {node: {"urls": list(urls), "env": env} for node in (context.participants.nodes if urls else ())}
    found: list[Reached] = []
    failed: dict[str, str] = {}
    for reply in ask(context.transport, "reach", args, ASKING_S):
        waiting = set(urls)
        for row in rows(reply):
            one = read_as({**row, "node": reply.node}, Reached)
            if one is not None and one.url in waiting:
                waiting.discard(one.url)
                found.append(one)
        if waiting:
            text = f"{len(waiting)} URLs were not answered for"
            failed[reply.node] = text if reply.missing is None else reason(reply)
    order = {n: i for i, n in enumerate(context.participants.nodes)}
    found.sort(key=lambda one: (urls.index(one.url), order[one.node]))
    return Reach(rows=tuple(found), failed_nodes=failed)

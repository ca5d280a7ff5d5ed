"""What stops a node on its way to a URL, and what helps."""

import re
from collections.abc import Sequence

from netdoctor.checks._addresses import parse
from netdoctor.checks._words import is_host_name, listing
from netdoctor.facts.mesh import Reached
from netdoctor.model import Cause, Fix, look, run

CAUSES = {
    "dns": Cause("reach-dns", "{nodes} cannot look up a host of --reach"),
    "connect": Cause("reach-connect", "{nodes} cannot connect to a host of --reach"),
    "proxy": Cause("reach-proxy", "{nodes} get{s} no further than the proxy on the way to --reach"),
    "tls": Cause("reach-tls", "{nodes} cannot verify what a host of --reach shows", follows=("time.skew",)),
    "http": Cause("reach-http", "{nodes} get{s} no answer of HTTP from a host of --reach"),
}
WRONG = Cause("reach-status", "A host of --reach answers {nodes} that it is not well")
OTHER = Cause("reach-differs", "A host of --reach refuses {nodes} what most nodes get")
_HOST = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?(?=[/]|$)")
# Without what stands before an @.
_PROXIES = "env | grep -i _proxy= | sed 's|//.*@|//***@|'"


def found(row: Reached) -> str | None:
    """What is wrong: a stage of CAUSES, ``status`` for a server's own trouble; None for an answer."""
    if row.stage in CAUSES:
        return row.stage
    if row.stage or row.status is None:
        return "untried" if row.stage == "untried" else "http"
    return "status" if row.status >= 500 else None


def fixes(row: Reached, good: Sequence[str]) -> tuple[Fix, ...]:
    """good: nodes that reach it."""
    parts = _HOST.match(row.url)
    host, port = (parts[1].strip("[]"), parts[2] or "443") if parts else ("", "443")
    plain = host if is_host_name(host) or parse(host) else ""
    as_others = f", as on {listing(good, 2)}" if good else ""
    ask = f"getent ahosts {plain}" if plain else ""
    if row.stage == "dns":
        servers = f"{ask}; cat /etc/resolv.conf" if ask else ""
        return (look(f"give it a name server that knows the host{as_others}", servers),)
    if row.stage in ("connect", "http"):
        text = "let it out to that host and port, or give the job the proxy (https_proxy) that leads there"
        return (look(text + as_others, _PROXIES, f"{ask}; ip route" if plain else ""),)
    if row.stage == "proxy":
        text = "see that the proxy of its environment is the right one, knows it, and lets this host pass"
        return (look(text + as_others, _PROXIES),)
    if row.stage == "tls":
        shown = f"openssl s_client -connect {plain}:{port} -servername {plain} </dev/null 2>/dev/null"
        text = "see who signed the certificate and until when it holds, and what time it is here"
        return (
            look(text, f"{shown} | openssl x509 -noout -issuer -subject -dates; date" if plain else ""),
            run(
                "install the CAs; one of your own goes into /usr/local/share/ca-certificates, then "
                "update-ca-certificates, and REQUESTS_CA_BUNDLE names the bundle to Python",
                "apt-get install -y ca-certificates || dnf install -y ca-certificates",
                root=True,
            ),
        )
    return (run(f"ask whoever runs that host what it has against this address{as_others}"),)

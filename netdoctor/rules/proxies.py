"""When clients of HTTP go to a host by a proxy, as Python's urllib decides it, and with it requests.

Written after CPython 3.13, urllib/request.py (getproxies_environment, proxy_bypass_environment), and requests
2.32, utils.py (should_bypass_proxies), which takes networks, too. tests/rules asks urllib.
"""

import ipaddress
from collections.abc import Mapping


def proxy(env: Mapping[str, str], scheme: str = "http") -> str:
    """The value of the variable that counts, empty for none: lower case wins, even where it is empty."""
    for name in (f"{scheme}_proxy", "all_proxy"):
        found = env[name] if name in env else env.get(name.upper(), "")
        if found:
            return found
    return ""


def is_bypassed(host: str, env: Mapping[str, str]) -> bool:
    """Whether no_proxy keeps `host`, a name or an address, from the proxy.

    A network (``10.0.0.0/8``) counts, as for requests, curl and Go, though urllib does not know it.
    """
    text = env["no_proxy"] if "no_proxy" in env else env.get("NO_PROXY", "")
    if text.strip() == "*":
        return True
    name = host.lower()
    for part in (one.strip().lstrip(".").lower() for one in text.split(",")):
        if part and (name == part or name.endswith(f".{part}") or _holds(part, name)):
            return True
    return False


def _holds(network: str, host: str) -> bool:
    try:
        return "/" in network and ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False

"""Whether this node reaches URLs: each stage by itself, as Python's clients go there, and nothing is kept."""

import os
import socket
import time

from .. import runtime
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional

MAX_URLS = 16
DNS_S, CONNECT_S, ANSWER_S = 6.0, 5.0, 8.0
ADDRESSES_TRIED = 3
# requests looks at these, in this order; without one OpenSSL takes SSL_CERT_FILE or its own.
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")

# What servers say that know GET alone; no more than the head of that answer is read either.
_NO_HEAD = (405, 501)


class Stopped(Exception):
    """It got no further than this stage."""

    def __init__(self, stage: str, detail: str, status: "Optional[int]" = None) -> None:
        super().__init__(detail)
        self.stage = stage
        self.status = status


def proxy_for(scheme: str, host: str, env: "Mapping[str, str]") -> str:
    """Return the proxy that Python's clients take, empty for none. Lower case wins, as in urllib."""
    from urllib import request

    def variable(name: str) -> str:
        return env.get(name) or env.get(name.upper()) or ""

    # Not in everybody's type stubs; there since Python 3.4.
    if getattr(request, "proxy_bypass_environment")(host, {"no": variable("no_proxy")}):  # noqa: B009
        return ""
    return variable(scheme + "_proxy") or variable("all_proxy")


def _dial(host: str, port: int, row: "dict[str, Any]") -> "socket.socket":
    try:
        found = runtime.bounded(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), DNS_S)
    except (OSError, UnicodeError, runtime.Unavailable) as e:
        raise Stopped("dns", "%s: %s" % (host, e.strerror if isinstance(e, OSError) else e)) from None
    last = "no address"
    for family, kind, protocol, _, address in found[:ADDRESSES_TRIED]:
        sock = socket.socket(family, kind, protocol)
        sock.settimeout(CONNECT_S)
        row["address"] = str(address[0])
        try:
            sock.connect(address)
        except OSError as e:
            last = "no answer in %g s" % CONNECT_S if isinstance(e, socket.timeout) else files.errno_name(e)
            sock.close()
        else:
            sock.settimeout(ANSWER_S)
            return sock
    raise Stopped("connect", "%s port %d: %s" % (row["address"] or host, port, last))


def _status(sock: "Any", request: str, stage: str) -> int:
    """Send a request and return the status of the answer; no more than its head is read."""
    try:
        sock.sendall(request.encode("ascii"))
        data = b""
        while b"\n" not in data and len(data) < 4096:
            part = sock.recv(1024)
            if not part:
                break
            data += part
    except (OSError, UnicodeError) as e:
        late = isinstance(e, socket.timeout)
        raise Stopped(stage, "no answer in %g s" % ANSWER_S if late else str(e)[:200]) from None
    words = data.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise Stopped(stage, "the answer is not HTTP" if data else "closed without an answer")
    return int(words[1][:3])


def _through(proxy: str, row: "dict[str, Any]") -> "tuple[socket.socket, str]":
    """Return a connection to a proxy, and the header with its password."""
    from base64 import b64encode
    from urllib.parse import unquote, urlsplit

    try:
        parts = urlsplit(proxy if "://" in proxy else "http://" + proxy)
        row["proxy"] = "%s:%d" % (parts.hostname or "", parts.port or 80)
    except ValueError:
        raise Stopped("proxy", "the proxy's address cannot be read") from None
    if parts.scheme != "http" or not parts.hostname:
        raise Stopped("untried", "a proxy that is spoken to by %s is not tried" % (parts.scheme or "?")[:20])
    secret = ""
    if parts.username is not None and parts.username != "***":
        pair = "%s:%s" % (unquote(parts.username), unquote(parts.password or ""))
        secret = "Proxy-Authorization: Basic %s\r\n" % b64encode(pair.encode()).decode()
    try:
        return _dial(parts.hostname, parts.port or 80, row), secret
    except Stopped as e:
        raise Stopped("proxy", str(e)) from None


def _secured(sock: "socket.socket", host: str, env: "Mapping[str, str]") -> "Any":
    import ssl

    bundle = next((env[name] for name in _BUNDLES if env.get(name)), None)
    try:
        folder = bundle if bundle and os.path.isdir(bundle) else None
        context = ssl.create_default_context(cafile=None if folder else bundle, capath=folder)
    except (OSError, ValueError) as e:
        raise Stopped("tls", "%s: %s" % (bundle, getattr(e, "strerror", None) or e)) from None
    try:
        return context.wrap_socket(sock, server_hostname=host)
    except socket.timeout:
        raise Stopped("tls", "no answer in %g s" % ANSWER_S) from None
    except (OSError, ValueError) as e:  # of these are ssl.SSLError and CertificateError
        text = getattr(e, "verify_message", None) or getattr(e, "reason", None) or e
        raise Stopped("tls", "certificate: %s" % text if "CERTIFICATE" in str(e) else str(text)) from None


def _ask(method: str, url: str, env: "Mapping[str, str]", row: "dict[str, Any]") -> None:
    """Put the status of one request into the row, over a connection of its own. Raises Stopped."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    host = parts.hostname or ""
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    if parts.scheme not in ("http", "https") or not host:
        raise Stopped("untried", "no URL of http or https")
    proxy = proxy_for(parts.scheme, host, env)
    name = "[%s]" % host if ":" in host else host
    sock, secret = _through(proxy, row) if proxy else (_dial(host, port, row), "")  # type: Any, str
    try:
        if secure and proxy:
            ask = "CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n%s\r\n" % (name, port, name, port, secret)
            status = _status(sock, ask, "proxy")
            if status != 200:
                raise Stopped("proxy", "the proxy answers %d" % status, status)
        if secure:
            sock = _secured(sock, host, env)
        target = (parts.path or "/") if secure or not proxy else url
        more = "User-Agent: netdoctor\r\nRange: bytes=0-0\r\n" + ("" if secure else secret)
        ask = "%s %s HTTP/1.1\r\nHost: %s\r\n%sConnection: close\r\n\r\n" % (method, target, name, more)
        row["status"] = _status(sock, ask, "http")
        if proxy and not secure and row["status"] == 407:
            raise Stopped("proxy", "the proxy answers 407", 407)
    finally:
        sock.close()


def look(url: str, env: "Mapping[str, str]") -> "dict[str, Any]":
    """Return one row of `reach`. Only this URL is asked: nobody follows where an answer points."""
    row = {"url": url, "stage": "", "status": None, "detail": ""}  # type: dict[str, Any]
    row.update(proxy="", address="")
    started = time.monotonic()
    try:
        _ask("HEAD", url, env, row)
        if row["status"] in _NO_HEAD:
            _ask("GET", url, env, row)
    except Stopped as e:
        row.update(stage=e.stage, detail=str(e)[:300], status=e.status)
    except (OSError, ValueError) as e:
        row.update(stage="untried", detail=str(e)[:300])
    row["elapsed_ms"] = (time.monotonic() - started) * 1000
    return row


def reach(args: "dict[str, Any]") -> "list[dict[str, Any]]":
    """Ask every URL for its head. args: {"urls": [url], "env": variables of the job over the session's}.

    Rows: {"url", "stage": where it ended ("dns", "connect", "proxy", "tls", "http", "untried"), empty where
    HTTP answered, "status", "detail", "proxy": host and port of one, "address", "elapsed_ms"}.
    """
    env = dict(os.environ)
    job_env = args.get("env")
    env.update((str(k), str(v)) for k, v in (job_env if isinstance(job_env, dict) else {}).items())
    urls = [str(url) for url in list(args.get("urls") or [])[:MAX_URLS]]
    rows = {}  # type: dict[str, dict[str, Any]]

    def start(url: str) -> "runtime.Thread":
        return runtime.thread(lambda: rows.update({url: look(url, env)}))

    end = time.monotonic() + DNS_S + ADDRESSES_TRIED * CONNECT_S + 3 * ANSWER_S
    for thread in [start(url) for url in urls]:
        runtime.join_until(thread, end)
    late = {"stage": "untried", "status": None, "detail": "no end in time", "proxy": "", "address": ""}
    return [rows.get(url) or dict(late, url=url) for url in urls]

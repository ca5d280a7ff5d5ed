"""URLs asked of real servers here: HTTPS with a CA of its own, a proxy, and some that misbehave."""

import base64
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netdoctor.agent.operations import reach as op_reach

CONFIG = "[req]\ndistinguished_name=dn\n[dn]\n[ext]\nsubjectAltName=DNS:localhost\n"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.pem and the server.pem that it signed, for the name localhost."""
    place = tmp_path_factory.mktemp("ca")
    (place / "config").write_text(CONFIG)
    new = [
        "openssl",
        "req",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-config",
        "config",
    ]
    ca = [*new, "-x509", "-subj", "/CN=ours", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2"]
    ask = [*new, "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr"]
    sign = [
        "openssl",
        "x509",
        "-req",
        "-in",
        "server.csr",
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-CAcreateserial",
    ]
    sign += ["-out", "server.crt", "-days", "2", "-extfile", "config", "-extensions", "ext"]
    for argv in (ca, ask, sign):
        subprocess.run(argv, cwd=place, check=True, capture_output=True)
    (place / "server.pem").write_text((place / "server.crt").read_text() + (place / "server.key").read_text())
    return place


class Server:
    """Answers what it was told to whoever connects; `asked` has the heads that came. A proxy dials `to`."""

    def __init__(self, answer: bytes, tls: Path | None = None, to: int = 0) -> None:
        self.answer, self.to, self.asked = answer, to, list[bytes]()
        self.context: Any = None
        if tls is not None:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(tls)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(client,), daemon=True).start()

    def _one(self, client: Any) -> None:
        try:
            client = self.context.wrap_socket(client, server_side=True) if self.context else client
            self.asked.append(client.recv(4096))
            client.sendall(self.answer)
            if self.to and b" 200 " in self.answer:
                self._pass(client)
            client.close()
        except OSError:
            client.close()

    def _pass(self, client: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self.to)) as there:

            def back() -> None:
                while data := there.recv(4096):
                    client.sendall(data)
                client.close()

            threading.Thread(target=back, daemon=True).start()
            while data := client.recv(4096):
                there.sendall(data)


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    made: list[Server] = []
    yield made
    for one in made:
        one.listener.close()


FINE = b"HTTP/1.1 200 OK\r\n\r\n"
Servers = list[Server]


def test_each_stage_by_itself(bundle: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op_reach, "ANSWER_S", 0.3)
    pem, ca = bundle / "server.pem", {"REQUESTS_CA_BUNDLE": str(bundle / "ca.pem")}
    fine, moved = Server(FINE, pem), Server(b"HTTP/1.1 302 Found\r\nLocation: http://x.invalid/\r\n\r\n", pem)
    odd, closed, plain, silent = (
        Server(b"220 mail\r\n"),
        Server(b""),
        Server(FINE),
        socket.create_server(("127.0.0.1", 0)),
    )
    servers += [fine, moved, odd, closed, plain]
    gone = socket.create_server(("127.0.0.1", 0))
    gone_port = gone.getsockname()[1]
    gone.close()
    for url, env, stage, status, said in (
        (f"https://localhost:{fine.port}/a", ca, "", 200, ""),
        (f"https://localhost:{fine.port}", {}, "tls", None, "certificate: "),
        (
            f"https://localhost:{fine.port}",
            {"SSL_CERT_FILE": "/nowhere.pem"},
            "tls",
            None,
            "/nowhere.pem: No such",
        ),
        (f"https://127.0.0.1:{fine.port}", ca, "tls", None, "certificate: IP address mismatch"),
        (f"https://localhost:{moved.port}", ca, "", 302, ""),
        (f"https://localhost:{plain.port}", ca, "tls", None, ""),
        (f"http://localhost:{plain.port}", {}, "", 200, ""),
        (f"http://localhost:{odd.port}", {}, "http", None, "not HTTP"),
        (f"http://localhost:{closed.port}", {}, "http", None, "closed without an answer"),
        (f"http://localhost:{silent.getsockname()[1]}", {}, "http", None, "no answer in 0.3 s"),
        (f"http://localhost:{gone_port}", {}, "connect", None, "ECONNREFUSED"),
        ("https://no-such-host.invalid/", {}, "dns", None, "no-such-host.invalid: "),
        ("ftp://localhost/", {}, "untried", None, "no URL"),
    ):
        row = op_reach.look(url, env)
        assert (row["stage"], row["status"]) == (stage, status), (url, row)
        assert said in row["detail"], row
    assert fine.asked[0].startswith(b"HEAD /a HTTP/1.1\r\nHost: localhost\r\n")
    silent.close()


def test_a_server_without_head_is_asked_by_get(servers: Servers) -> None:
    odd = Server(b"HTTP/1.0 405 No\r\n\r\n")
    servers.append(odd)
    assert op_reach.look(f"http://localhost:{odd.port}/x", {})["status"] == 405
    assert [head.split()[0] for head in odd.asked] == [b"HEAD", b"GET"]


def test_proxies_of_the_environment(bundle: Path, servers: Servers) -> None:
    fine = Server(FINE, bundle / "server.pem")
    proxy, strict, plain = Server(FINE, to=fine.port), Server(b"HTTP/1.1 407 No\r\n\r\n"), Server(FINE)
    servers += [fine, proxy, strict, plain]
    ca = {"REQUESTS_CA_BUNDLE": str(bundle / "ca.pem")}
    url, by = f"https://localhost:{fine.port}/", f"127.0.0.1:{proxy.port}"
    row = op_reach.look(url, {**ca, "https_proxy": f"http://me:p%40ss@{by}"})
    assert (row["stage"], row["status"], row["proxy"]) == ("", 200, by)
    assert proxy.asked[0].startswith(b"CONNECT localhost:%d HTTP/1.1" % fine.port)
    assert base64.b64encode(b"me:p@ss") in proxy.asked[0]
    assert not any(b"Authorization" in head for head in fine.asked)
    assert "p%40ss" not in str(row)
    # Upper case counts where lower does not say, and no_proxy before both.
    assert op_reach.look(url, {**ca, "HTTPS_PROXY": by, "https_proxy": ""})["proxy"] == by
    assert op_reach.look(url, {**ca, "HTTPS_PROXY": by, "no_proxy": "localhost"})["proxy"] == ""
    row = op_reach.look(url, {**ca, "ALL_PROXY": f"http://***@127.0.0.1:{strict.port}"})
    assert (row["stage"], row["status"], row["detail"]) == ("proxy", 407, "the proxy answers 407")
    row = op_reach.look(f"http://else.invalid:{fine.port}/b", {"http_proxy": f"127.0.0.1:{plain.port}"})
    assert (row["stage"], row["status"]) == ("", 200)
    assert plain.asked[0].startswith(
        b"HEAD http://else.invalid:%d/b HTTP/1.1\r\nHost: else.invalid" % fine.port
    )
    assert op_reach.look(url, {"https_proxy": "socks5://127.0.0.1:1"})["stage"] == "untried"
    assert op_reach.look(url, {"https_proxy": "127.0.0.1:1"})["stage"] == "proxy"


def test_as_the_agent_is_asked(servers: Servers) -> None:
    fine = Server(FINE)
    servers.append(fine)
    urls = [f"http://localhost:{fine.port}/{i}" for i in range(3)]
    assert [(row["url"], row["status"]) for row in op_reach.reach({"urls": urls})] == [
        (url, 200) for url in urls
    ]

"""The MTU of InfiniBand ports, as a library with the real one's structures tells it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from netdoctor.agent.system import verbs_ports

# struct ibv_port_attr as rdma-core has it; bad0 cannot be opened, odd0 says what is no MTU.
LIBRARY = """
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
struct ibv_port_attr {
  int state, max_mtu, active_mtu, gid_tbl_len;
  uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
  uint16_t pkey_tbl_len, lid, sm_lid;
  uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed, phys_state;
  uint8_t link_layer, flags;
  uint16_t port_cap_flags2;
};
static const char *names[] = {"bad0", "mlx5_0", "mlx5_1", "odd0", "hung0", 0};
void *ibv_get_device_list(int *n) { if (n) *n = 5; return names; }
const char *ibv_get_device_name(void *device) { return device; }
void *ibv_open_device(void *device) {
  fprintf(stderr, "libibverbs: Warning: no userspace device-specific driver found\\n");
  if (!strcmp(device, "hung0")) for (;;) pause();
  return strcmp(device, "bad0") ? device : 0;
}
int ibv_query_port(void *context, uint8_t port, struct ibv_port_attr *found) {
  if (port > 2) return 22;
  memset(found, 0, sizeof *found);
  found->state = 4; found->max_mtu = 5; found->lid = 7;
  found->active_mtu = !strcmp(context, "odd0") ? 99 : !strcmp(context, "mlx5_1") ? 4 : port == 2 ? 1 : 5;
  return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verbs")
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    (folder / "verbs.c").write_text(LIBRARY)
    made = [compiler, "-shared", "-fPIC", "-o", folder / "libibverbs.so.1", folder / "verbs.c"]
    subprocess.run(made, check=True)
    return folder


def asked(ports: list[tuple[str, int]], folder: Path | None) -> tuple[dict[str, int], str]:
    """What a Python of its own is told, and what it writes to stderr."""
    program = (
        "import json; from netdoctor.agent.system import verbs_ports; verbs_ports.PATIENCE_S = 0.5; "
        f"print(json.dumps(verbs_ports.mtus({ports!r})))"
    )
    env = {**os.environ, **({"LD_LIBRARY_PATH": str(folder)} if folder else {})}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout), done.stderr


def test_what_ports_have_agreed_on(library: Path) -> None:
    ports = [
        ("mlx5_0", 1),
        ("mlx5_0", 2),
        ("mlx5_0", 3),
        ("mlx5_1", 1),
        ("odd0", 1),
        ("bad0", 1),
        ("none0", 1),
    ]
    assert asked(ports, library) == ({"mlx5_0:1": 4096, "mlx5_0:2": 256, "mlx5_1:1": 2048}, "")


def test_one_that_never_answers_costs_itself_alone(library: Path) -> None:
    assert asked([("hung0", 1)], library) == ({}, "")


def test_the_library_of_this_machine_or_none() -> None:
    assert asked([("nosuchhca0", 1)], None) == ({}, "")
    assert verbs_ports.mtus([("nosuchhca0", 1)]) == {}

"""One command on many hosts with fabric.ThreadingGroup as its documentation shows it.

fabric_group.py SSH_CONFIG HOSTS_FILE COMMAND_FILE: prints each host's output.
"""

import sys
from pathlib import Path

from fabric import Config, ThreadingGroup
from fabric.exceptions import GroupException


def main() -> int:
    ssh_config, hosts_file, command_file = sys.argv[1:]
    config = Config(runtime_ssh_path=ssh_config)
    group = ThreadingGroup(*Path(hosts_file).read_text().split(), config=config)
    command = Path(command_file).read_text()
    code = 0
    try:
        results = group.run(command, hide=True, warn=True)
    except GroupException as error:
        results = error.result
        code = 1
    for result in results.values():
        print(getattr(result, "stdout", result))
    return code


if __name__ == "__main__":
    sys.exit(main())

"""Asked in a Python that has torch: what torch's own analysis says of flight records in folders.

A line of JSON per folder on stdout: the first collective of each group that does not fit, as
[group, number, missing ranks, {culprit: kind}].
"""

import argparse
import json
import os
import sys

from torch.distributed.flight_recorder.components import builder, loader, utils

PREFIX = "trace_"


def first_troubles(folder):
    details = {}
    for name in sorted(os.listdir(folder), key=lambda name: int(name[len(PREFIX) :])):
        details[name] = loader.read_dump(PREFIX, os.path.join(folder, name))
    config = {dump["rank"]: dump["pg_config"] for dump in details.values()}
    entries = utils.align_trace_from_beginning({dump["rank"]: dump["entries"] for dump in details.values()})
    _, groups, _, memberships, guids = builder.build_groups_memberships(config)
    version = next(iter(details.values()))["version"]
    _, collectives, _ = builder.build_collectives(entries, groups, memberships, guids, version, 10**6)
    names = {guid: name for (name, _), guid in guids.items()}
    found = {}
    for one in collectives:
        missing = sorted(one.missing_ranks or ())
        culprits = {
            rank: other.type_of_mismatch.state.name
            for rank, other in (one.mismatch_collectives or {}).items()
        }
        if missing or not one.pass_check:
            group = names.get(one.group_id, one.group_id)
            found.setdefault(group, [group, one.collective_seq_id, missing, culprits])
    return list(found.values())


def main():
    argparse.ArgumentParser().parse_known_args()
    for folder in sys.argv[1:]:
        sys.stdout.write(json.dumps(first_troubles(folder)) + "\n")


main()

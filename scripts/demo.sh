#!/bin/bash
# Four real nodes on this machine, two of them broken, and what netdoctor says about them. Cleans up after itself.
# Exit 0 when the scan finds what was broken and nothing else.
#
# NETDOCTOR_DEMO_SUBNET: the first three numbers of the nodes' addresses, 10.79.0 by default.
# NETDOCTOR_DEMO_REPORT: a file for the JSON report, without what it says of this machine; the screenshots are drawn
# from docs/demo-report.json, which was made so.
set -euo pipefail

keep=${NETDOCTOR_DEMO_REPORT:+$(realpath -m "$NETDOCTOR_DEMO_REPORT")}
work=$(mktemp -d)
cd "$work"
lab=(netdoctor lab)
where=(--state-dir lab)
clean_up() {
    status=$?
    trap - EXIT INT TERM
    if [ -e lab ]; then
        echo "\$ netdoctor lab down"
        "${lab[@]}" down "${where[@]}" || status=1
    fi
    cd /
    rm -rf "$work"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

shown() {
    echo "\$ $*"
    "$@"
}

only=()
if [ "$(id -u)" -eq 0 ]; then
    up=(--subnet "${NETDOCTOR_DEMO_SUBNET:-10.79.0}")
    faults=("node2 drop dir=in" "node3 own-name-loopback")
else
    if ! PATH="$PATH:/usr/sbin:/sbin" command -v sshd >/dev/null; then
        echo "Nothing can be shown: not root, and no sshd for nodes that share this machine's network." >&2
        echo "As root, make demo installs what it needs; or: apt-get install openssh-server" >&2
        exit 1
    fi
    echo "Not root: nodes are SSH servers on loopback addresses and share this machine's network and files."
    echo "Skipped: firewalls, links, names and clocks that differ from node to node; they need namespaces, so root."
    echo
    up=(--loopback)
    only=(--only ssh.login)
    faults=("node2 sshd-down" "node3 wrong-key")
fi

shown "${lab[@]}" up 4 "${up[@]}" "${where[@]}"
for fault in "${faults[@]}"; do
    read -ra words <<<"$fault"
    shown "${lab[@]}" break "${words[@]}" "${where[@]}"
done

echo
set +e
shown netdoctor scan lab/hosts.txt --ssh-config lab/ssh_config "${only[@]}" -o text -o json=report.json
code=$?
set -e
echo

python3 - report.json "$code" "$keep" <<'EOF'
import json
import sys

path, code, keep = sys.argv[1:]
if code != "1":
    sys.exit(f"the scan ended with exit code {code}, not 1 (not ready)")
with open(path, encoding="utf-8") as file:
    report = json.load(file)
found = sorted(cause["node_list"] for cause in report["causes"] if cause["status"] == "fail")
if found != [["node2"], ["node3"]]:
    sys.exit(f"node2 and node3 were broken, one fault each; the scan blames {found}")
if keep:
    report["run"].update(replay={}, control_host={})
    for target in report["targets"]:
        target["facts"] = {k: v for k, v in target["facts"].items() if k not in ("kernel", "memory_bytes")}
    with open(keep, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
print("What was broken is what was found: one cause on node2, one on node3. The scan's exit code was 1, not ready.")
EOF

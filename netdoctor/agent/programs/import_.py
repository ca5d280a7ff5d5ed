# mypy: ignore-errors
"""What imports torch and others in the job's interpreter. Its text travels to the nodes; nothing imports it.

Python 3.6 and up, standard library. One module after the other in one process, as a job does; nothing is
written, bytecode neither. What modules print goes nowhere.
"""

import json
import os
import sys
import time

CONFIG = globals().get("CONFIG") or {}
TEXT_CAP = 400


def say(out, **message):
    data = (json.dumps(message) + "\n").encode("ascii")
    while data:
        data = data[os.write(out, data) :]


def last_line(error):
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    return (type(error).__name__ + (": " + lines[-1] if lines else ""))[:TEXT_CAP]


def modules_of(name):
    """The modules that a distribution brings: what its RECORD has at the top, else one called like it."""
    try:
        from importlib.metadata import distribution

        found = distribution(name)
    except Exception:  # no such metadata, or a Python before 3.8
        return [name.replace("-", "_")]
    declared = (found.read_text("top_level.txt") or "").split()
    if not declared:
        tops = [str(path).replace("\\", "/").split("/") for path in found.files or ()]
        declared = [parts[0] for parts in tops if len(parts) > 1 and parts[1] == "__init__.py"]
        declared += [parts[0][:-3] for parts in tops if len(parts) == 1 and parts[0].endswith(".py")]
    plain = [one for one in dict.fromkeys(declared) if one.isidentifier() and not one.startswith("_")]
    import_name = name.replace("-", "_").replace(".", "_").lower()
    # tests and the like lie at the top by mistake: one that is called like the distribution is the one.
    return [one for one in plain if one.lower() == import_name] or plain[:1]


def main():
    out = os.dup(1)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    sys.dont_write_bytecode = True
    rows = []
    for name in CONFIG["names"]:
        say(out, event="begin", text=name)
        began = time.monotonic()
        row = {"name": name, "modules": [], "version": "", "error": ""}
        try:
            row["modules"] = modules_of(name)
            for module in row["modules"]:
                version = getattr(__import__(module), "__version__", "")
                row["version"] = row["version"] or (version if isinstance(version, str) else "")[:60]
        except BaseException as error:  # whatever a module's code raises is what is looked for
            if isinstance(error, KeyboardInterrupt):
                raise
            row["error"] = last_line(error)
        row["seconds"] = round(time.monotonic() - began, 3)
        rows.append(row)
    say(out, event="result", rows=rows, end="done")


if CONFIG:
    main()

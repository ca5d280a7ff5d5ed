"""Formats by name, and where each one goes. A renderer is imported when its format is asked for."""

import importlib
import os
import select
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from netdoctor.errors import InputError
from netdoctor.report.model import Note, Report
from netdoctor.text import columns_of, did_you_mean

FILE_WIDTH = 100
NARROWEST = 40
EXIT_BROKEN = 5
# UTF-8 by themselves, whatever the terminal takes.
UTF_8 = ("json", "jsonl", "junit", "html", "prom")


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderOptions:
    """How a report is drawn. width None and color ``auto`` ask the terminal, in `emit` only."""

    width: int | None = None
    color: str = "auto"
    verbosity: int = 0
    all_causes: bool = False
    json_detail: str = "problems"
    pretty: bool = False
    junit_by: str = "auto"

    @property
    def columns(self) -> int:
        return self.width or FILE_WIDTH

    @property
    def is_colored(self) -> bool:
        return self.color == "always"


class Stream(Protocol):
    """What has written an output since the scan began, and ends it."""

    def end(self, report: Report, detail: str) -> None:
        """Raises OSError for what could not be written."""
        ...


@dataclass(frozen=True, slots=True)
class Output:
    """A format and its file."""

    format: str
    path: Path | None = None  # None is stdout
    stream: int | None = None  # a descriptor where that is a pipe or a device
    live: "Stream | None" = None  # what writes this output while the scan runs


Renderer = Callable[[Report, RenderOptions], str | bytes]


def _format(module: str, function: str = "render", **arguments: str) -> Renderer:
    """The renderer `function` of ``formats/<module>.py``, imported when it is used.

    arguments: which field of RenderOptions each of its arguments is.
    """

    def render(report: Report, options: RenderOptions) -> str | bytes:
        renderer = getattr(importlib.import_module(f"netdoctor.report.formats.{module}"), function)
        given = {name: getattr(options, field) for name, field in arguments.items()}
        rendered: str | bytes = renderer(report, **given)
        return rendered

    return render


FORMATS: dict[str, Renderer] = {
    "text": _format(
        "text", width="columns", color="is_colored", verbosity="verbosity", all_causes="all_causes"
    ),
    "short": _format("short"),
    "json": _format("json_", "dumps", detail="json_detail", pretty="pretty"),
    "jsonl": _format("jsonl", detail="json_detail"),
    "junit": _format("junit", by="junit_by"),
    "markdown": _format("markdown"),
    "html": _format("html"),
    "github": _format("github", width="columns"),
    "prom": _format("prom"),
    "hosts": _format("hosts"),
    "sarif": _format("sarif", pretty="pretty"),
    "nagios": _format("nagios"),
    "npd": _format("npd"),
    "slurm": _format("drain", "slurm"),
    "kubectl": _format("drain", "kubectl"),
    "none": lambda report, options: "",
}


def parse_output(text: str) -> Output:
    """Return what ``junit=report.xml`` asks for; ``-`` is stdout. Raises InputError."""
    name, equals, path = text.partition("=")
    if name not in FORMATS:
        hint = did_you_mean(name.lower(), FORMATS, 0.5) or f"; there are: {', '.join(FORMATS)}"
        raise InputError(f"-o {text[:80]}: no format is called {name[:40]!r}{hint}")
    if equals and not path:
        raise InputError(f"-o {text}: the file is missing; write: -o {name}=FILE")
    if name == "none" and path:
        raise InputError(f"-o {text[:80]}: nothing can be written to a file; write: -o none")
    if "\0" in path:
        raise InputError(f"-o {name}: the file name holds a NUL")
    return Output(name, None if path in ("", "-") else Path(path))


def parse_outputs(texts: Sequence[str]) -> list[Output]:
    """Return the outputs of all -o flags; without any, text on stdout. Raises InputError for clashes."""
    outputs = [parse_output(text) for text in texts] or [Output("text")]
    printed = [output.format for output in outputs if output.path is None and output.format != "none"]
    if len(printed) > 1:
        raise InputError(
            f"-o {printed[0]} and -o {printed[1]} both go to stdout; give one a file: -o {printed[1]}=FILE"
        )
    if printed and any(output.format == "none" for output in outputs):
        raise InputError(f"-o none and -o {printed[0]} contradict each other; leave one out")
    return outputs


def deliver(
    report: Report,
    outputs: Sequence[Output],
    options: RenderOptions,
    *,
    save: Path | None,
    redact: bool,
    saved: Report | None = None,
) -> tuple[int, list[str]]:
    """Save and print a report: (exit code, what could not be written and why). The rest is written.

    saved: what is saved instead of it, the report that it has become a part of.

    What is missing turns READY into exit 5, and hides no worse verdict. Stdout comes last and tells both.
    """
    from netdoctor.report.save import save as save_report
    from netdoctor.report.save import write_scripts

    failures: list[str] = []

    def attempt(what: str, work: Callable[[], Report | None]) -> Report | None:
        try:
            return work()
        except OSError as error:
            failures.append(f"{what}: {error.strerror or error}")
            return None

    if save is not None:
        missing = f"the report was not saved to {save}"
        if written := attempt(missing, partial(save_report, saved or report, save)):
            run = replace(report.run, saved_to=str(save))
            report = written if saved is None else replace(write_scripts(report, save), run=run)
    if redact:
        from netdoctor.report.redact import redact as redacted

        report = redacted(report)  # after saving: --last has to find the nodes again
    for output in sorted(outputs, key=lambda output: output.path is None):
        suffix = f"={output.path}" if output.path else ""
        complete = report if output.path else _with_failures(report, failures)
        attempt(f"-o {output.format}{suffix}", partial(emit, complete, output, options))
    return _with_failures(report, failures).verdict.exit_code, failures


def _with_failures(report: Report, failures: Sequence[str]) -> Report:
    """The report as it ends: with what could not be written, and the exit code that comes of it."""
    if not failures:
        return report
    notes = tuple(Note(level="warn", text=text) for text in failures)
    verdict = replace(report.verdict, exit_code=report.verdict.exit_code or EXIT_BROKEN)
    return replace(report, verdict=verdict, notes=(*report.notes, *notes))


def render(report: Report, format: str, options: RenderOptions | None = None) -> str | bytes:
    """Return the report in a format; it depends on nothing but the arguments."""
    return FORMATS[format](report, options or RenderOptions())


def emit(report: Report, output: Output, options: RenderOptions | None = None) -> None:
    """Write one output to its file, whole, or to stdout. Raises OSError."""
    options = options or RenderOptions()
    if output.format == "none":
        return
    if output.live is not None:
        output.live.end(report, options.json_detail)
        return
    if output.path is None:
        data = render(report, output.format, for_stdout(options))
        put(data.encode() if isinstance(data, str) and output.format in UTF_8 else data)
        return
    from netdoctor.report.save import READABLE, pour, write_whole

    data = render(report, output.format, options)
    data = data if isinstance(data, bytes) else data.encode("utf-8", "replace")
    if output.stream is not None:
        pour(output.stream, data)
        os.close(output.stream)
    else:
        write_whole(output.path, data, READABLE)


def for_stdout(options: RenderOptions) -> RenderOptions:
    """Return options with what the terminal decides decided: width and colour.

    An exported COLUMNS says the width of what is piped, too, as it does to other tools.
    """
    terminal = sys.stdout.isatty()
    width = options.width or columns_of(os.environ)
    if width is None and terminal:
        width = max(NARROWEST, min(_columns(), FILE_WIDTH))
    able = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    color = "always" if options.color == "always" or (options.color == "auto" and able) else "never"
    return replace(options, width=width, color=color)


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or FILE_WIDTH
    except (OSError, ValueError):
        return FILE_WIDTH


def put(data: str | bytes) -> None:
    """Write to stdout now, so that a full disk or a closed pipe is noticed here. Raises OSError.

    Bytes stay what they are, text is written in the encoding of the terminal. A reader who leaves after a
    part, as `head` and `grep -q` do, took what it wanted.
    """
    if isinstance(data, str):
        data = data.encode(getattr(sys.stdout, "encoding", None) or "utf-8", "backslashreplace")
    sys.stdout.flush()
    buffer = getattr(sys.stdout, "buffer", None)
    raw = getattr(buffer, "raw", None)
    if buffer is None or raw is None:  # a stand-in
        sys.stdout.write(data.decode("utf-8", "replace")) if buffer is None else buffer.write(data)
        sys.stdout.flush()
        return
    left = memoryview(data)
    try:
        while left:
            written = raw.write(left)
            if written is None:  # somebody made our end of the pipe one that does not wait
                select.select([], [raw], [])
            else:
                left = left[written:]
    except BrokenPipeError:
        if len(left) == len(data):
            raise

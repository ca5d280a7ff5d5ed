"""Formats by name, and where each one goes. A renderer is imported when its format is asked for."""

import difflib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from netdoctor.errors import InputError
from netdoctor.report.model import Report

FILE_WIDTH = 100
NARROWEST = 40


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
    ascii: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """A format and its file; path None is stdout."""

    format: str
    path: Path | None = None


def _text(report: Report, options: RenderOptions) -> str:
    from netdoctor.report.text import render

    return render(
        report,
        width=options.width or FILE_WIDTH,
        color=options.color == "always",
        verbosity=options.verbosity,
        all_causes=options.all_causes,
        ascii=options.ascii,
    )


def _short(report: Report, options: RenderOptions) -> str:
    from netdoctor.report.short import render

    return render(report)


def _json(report: Report, options: RenderOptions) -> bytes:
    from netdoctor.report.json_ import dumps

    return dumps(report, options.json_detail, options.pretty)


def _jsonl(report: Report, options: RenderOptions) -> bytes:
    from netdoctor.report.jsonl import render

    return render(report, detail=options.json_detail)


def _junit(report: Report, options: RenderOptions) -> str:
    from netdoctor.report.junit import render

    return render(report, by=options.junit_by)


def _markdown(report: Report, options: RenderOptions) -> str:
    from netdoctor.report.markdown import render

    return render(report)


def _github(report: Report, options: RenderOptions) -> str:
    from netdoctor.report.github import render

    return render(report, width=options.width or FILE_WIDTH)


def _prom(report: Report, options: RenderOptions) -> str:
    from netdoctor.report.prom import render

    return render(report)


def _none(report: Report, options: RenderOptions) -> str:
    return ""


FORMATS: dict[str, Callable[[Report, RenderOptions], str | bytes]] = {
    "text": _text,
    "short": _short,
    "json": _json,
    "jsonl": _jsonl,
    "junit": _junit,
    "markdown": _markdown,
    "github": _github,
    "prom": _prom,
    "none": _none,
}


def parse_output(text: str) -> Output:
    """Return what ``junit=report.xml`` asks for; ``-`` is stdout. Raises InputError."""
    name, equals, place = text.partition("=")
    if name not in FORMATS:
        close = difflib.get_close_matches(name.lower(), FORMATS, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(FORMATS)}"
        raise InputError(f"-o {text[:80]}: no format is called {name[:40]!r}; {hint}")
    if equals and not place:
        raise InputError(f"-o {text}: the file is missing; write: -o {name}=FILE")
    if name == "none" and place:
        raise InputError(f"-o {text[:80]}: nothing can be written to a file; write: -o none")
    if "\0" in place:
        raise InputError(f"-o {name}: the file name holds a NUL")
    return Output(name, None if place in ("", "-") else Path(place))


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
    places: dict[str, Output] = {}
    for output in outputs:
        if output.path is not None:
            other = places.setdefault(os.path.realpath(output.path), output)
            if other is not output:
                raise InputError(
                    f"-o {other.format}={other.path} and -o {output.format}={output.path} are the same file"
                )
    return outputs


def check_places(outputs: Sequence[Output], save: Path | None) -> None:
    """Refuse files that cannot be written, before a scan begins. Raises InputError."""
    places = [("-o", output.path) for output in outputs if output.path is not None]
    if save is not None:
        places.append(("--save", save))
    for flag, path in places:
        folder = path.parent
        if path.is_dir():
            raise InputError(f"{flag} {path}: is a folder; name a file")
        if not folder.is_dir():
            raise InputError(f"{flag} {path}: no folder {folder}")
        if not os.access(folder, os.W_OK):
            raise InputError(f"{flag} {path}: no permission to write in {folder}")


def deliver(
    report: Report, outputs: Sequence[Output], options: RenderOptions, *, save: Path | None, redact: bool
) -> list[str]:
    """Save and print a report. Returns what could not be written, and why; the rest is written."""
    from netdoctor.report.save import save as save_report

    troubles: list[str] = []

    def attempt(what: str, work: Callable[[], object]) -> None:
        try:
            work()
        except OSError as error:
            troubles.append(f"{what}: {error.strerror or error}")

    if save is not None:
        attempt(f"the report was not saved to {save}", partial(save_report, report, save))
        if not troubles:
            report = replace(report, run=replace(report.run, saved_to=str(save)))
    if redact:
        from netdoctor.report.redact import redact as redacted

        report = redacted(report)  # after saving: --last has to find the nodes again
    for output in outputs:
        place = f"={output.path}" if output.path else ""
        attempt(f"-o {output.format}{place}", partial(emit, report, output, options))
    return troubles


def render(report: Report, format: str, options: RenderOptions | None = None) -> str | bytes:
    """Return the report in a format; it depends on nothing but the arguments."""
    return FORMATS[format](report, options or RenderOptions())


def emit(report: Report, output: Output, options: RenderOptions | None = None) -> None:
    """Write one output to its file, whole, or to stdout. Raises OSError."""
    options = options or RenderOptions()
    if output.format == "none":
        return
    if output.path is None:
        put(render(report, output.format, for_stdout(options)))
        return
    from netdoctor.report.save import write_whole

    data = render(report, output.format, options)
    write_whole(output.path, data if isinstance(data, bytes) else data.encode("utf-8", "replace"))


def for_stdout(options: RenderOptions) -> RenderOptions:
    """Return options with what the terminal decides decided: width, colour, and whether it takes UTF-8."""
    terminal = sys.stdout.isatty()
    width = options.width
    if width is None and terminal:
        width = max(NARROWEST, min(_columns(), FILE_WIDTH))
    able = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    color = "always" if options.color == "always" or (options.color == "auto" and able) else "never"
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
    return replace(options, width=width, color=color, ascii=options.ascii or not encoding.startswith("utf"))


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or FILE_WIDTH
    except (OSError, ValueError):
        return FILE_WIDTH


def put(data: str | bytes) -> None:
    """Write to stdout now, so that a full disk or a closed pipe is noticed here. Raises OSError."""
    if isinstance(data, bytes):
        data = data.decode("utf-8")
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    sys.stdout.write(data.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()

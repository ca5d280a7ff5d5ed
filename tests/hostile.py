"""One corpus of hostile text for every sink: terminal, TUI, JSON, JUnit, CSV, Markdown, CI, files.

Push each string through whatever takes text from nodes, files, logs or plug-ins, with `each_of(HOSTILE)`. The
key says what a string attacks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable

HOSTILE: dict[str, str] = {
    # Terminals
    "ansi-colour": "\x1b[31mred\x1b[0m",
    "ansi-clear": "\x1b[2J\x1b[H",
    "ansi-title": "\x1b]0;owned\x07",
    "ansi-c1-csi": "\x9b31m",
    "ansi-dcs": "\x1bP+q544e\x1b\\",
    "ansi-report": "\x1b[6n\x1b[c",
    "osc-8-link": "\x1b]8;;https://evil.example/\x1b\\gpu1\x1b]8;;\x1b\\",
    "osc-52-clipboard": "\x1b]52;c;cm0gLXJmIH4=\x07",
    "carriage-return": "fail\rpass",
    "backspace": "fail\b\b\b\bpass",
    "bell": "gpu1\x07",
    "newline": "gpu1\nREADY",
    "crlf": "gpu1\r\nREADY\r\n",
    "tab": "gpu1\tgpu2",
    "form-feed": "gpu1\x0c\x0bgpu2",
    "next-line": "gpu1\x85gpu2",
    "line-separator": "gpu1\u2028gpu2\u2029gpu3",
    "delete": "gpu1\x7f",
    # Unicode
    "bidi-override": "gpu\u202e1upg",
    "bidi-isolate": "\u2066gpu1\u2069 \u2067gpu2",
    "bidi-marks": "gpu\u200e\u200f\u061c1",
    "zero-width": "gp\u200bu\u200c1\u200d\u2060",
    "byte-order-mark": "\ufeffgpu1",
    "no-break-space": "gpu\u00a01",
    "soft-hyphen": "gpu\u00ad1",
    "hangul-filler": "gpu\u3164",
    "tag-characters": "gpu\U000e0067\U000e0070",
    "homoglyph": "gpu-\u0430\u0435\u043e",
    "full-width": "\uff47\uff50\uff551",
    "combining": "g" + "\u0301" * 200,
    "lone-surrogate": "gpu\ud800",
    "surrogate-escape": "gpu\udcff\udc9b",
    "non-character": "gpu\ufffe\uffff",
    "private-use": "gpu\ue000",
    "astral": "gpu\U0001f4a5",
    "dotless-digits": "gpu\u0661\u0662",
    # XML, JSON, files
    "nul": "gpu\x001",
    "control-run": "".join(map(chr, range(32))),
    "xml-illegal": "gpu\x01\x08\x0b\x1f",
    "xml-cdata-end": "]]><x/>",
    "xml-entity": "&xxe;<!ENTITY a 'b'>",
    "json-break": '"},{"status":"pass"',
    "json-nan": "NaN",
    "backslashes": "\\\\x1b\\u001b\\",
    "html-script": "<script>alert(1)</script>",
    "markdown-table": "gpu1 | pass | [x](javascript:1) |",
    "markdown-image": "![x](https://evil.example/p.png)",
    "markdown-fence": "```\n# READY\n```",
    "prometheus-label": 'gpu1",status="pass"} 1\nnetdoctor_ready 1',
    # Markup of the drawing libraries
    "markup-colour": "[red]gpu1[/red]",
    "markup-unclosed": "[bold",
    "markup-bad-close": "[/nothing]",
    "markup-click": "[@click=app.quit]gpu1[/]",
    "markup-link": "[link=https://evil.example/]gpu1[/link]",
    "markup-escape": "\\[red]gpu1",
    # Spreadsheets
    "csv-equals": "=1+1",
    "csv-command": "=cmd|' /C calc'!A0",
    "csv-plus": "+1+1",
    "csv-minus": "-1+1",
    "csv-at": "@SUM(A1:A9)",
    "csv-quote": '"gpu1","pass"',
    # CI systems
    "github-error": "::error file=x,line=1::owned",
    "github-mask": "::add-mask::READY",
    "github-stop": "gpu1\n::stop-commands::x",
    "azure-command": "##vso[task.setvariable variable=x]y",
    "gitlab-section": "section_start:1:x\r\x1b[0K",
    "teamcity": "##teamcity[testFailed name='x']",
    # Shells, options, paths
    "shell-substitution": "$(touch x)",
    "shell-backticks": "`touch x`",
    "shell-semicolon": "gpu1;touch x",
    "shell-pipe": "gpu1|touch x",
    "shell-and": "gpu1&&touch x",
    "shell-redirect": "gpu1>x",
    "shell-quote": "gpu1'\"; touch x; '",
    "shell-variable": "${IFS}$HOME",
    "shell-glob": "*",
    "shell-brace": "{a,b}",
    "option-proxy": "-oProxyCommand=touch x",
    "option-long": "--help",
    "option-dash": "-",
    "ssh-percent": "%h%r%n",
    "ssh-at": "user@-oProxyCommand=x",
    "path-parent": "../../etc/passwd",
    "path-absolute": "/etc/passwd",
    "path-backslash": "..\\..\\windows",
    "path-home": "~/.ssh/id_ed25519",
    "url": "ssh://gpu1:22/",
    "template": "{{7*7}} {0.__class__} %s %(x)s",
    "python-format": "{self.__class__.__init__.__globals__}",
    # Sizes and shapes
    "empty": "",
    "spaces": "   ",
    "long-name": "a" * 10_000,
    "long-dotted": "a." * 5_000,
    "long-escapes": "\x1b[31m" * 2_000,
    "wide-range": "gpu[1-999999999]",
    "product-range": "n[1-9999][1-9999][1-9999]",
    "huge-number": "gpu[1-" + "9" * 5_000 + "]",
    "nested-brackets": "[" * 2_000,
    "closed-brackets": "]" * 2_000,
    "group": "@all",
    "commas": "," * 2_000,
    "wildcards": "*a" * 40 + "b",
}
"""Name of the attack to the string that makes it."""

HOSTILE_BYTES: dict[str, bytes] = {
    "latin-1": "gpu1 # K\xfcche\n".encode("latin-1"),
    "utf-16": "gpu1\n".encode("utf-16"),
    "utf-16-no-mark": "gpu1\n".encode("utf-16-le"),
    "utf-32": "gpu1\n".encode("utf-32"),
    "overlong": b"gpu\xc0\xaf1\n",
    "cut-sequence": b"gpu\xe2\x82",
    "surrogate": b"gpu\xed\xa0\x80\n",
    "elf": b"\x7fELF\x02\x01\x01\x00\x00",
    "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
    "nul-inside": b"gpu1\ngp\x00u2\n",
    "escape": b"\x1b[2Jgpu1\n",
    "deep-json": b"[" * 100_000,
    "pickle": b"\x80\x04\x95\x00.",
}
"""Content of files that are not the text somebody expects."""


def steers_a_terminal(text: str) -> bool:
    """Return whether printing `text` could do more than show characters on lines."""
    return any(not (char.isprintable() or char == "\n") for char in text)


def each_of(attacks: Iterable[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make one case of a test that takes `attack`, a name of the corpus: it holds for each of them.

    A case per string would be thousands, each shorter than what pytest itself takes for it. A failure names
    all attacks that got through.
    """
    names = tuple(attacks)

    def fold(test: Callable[..., None]) -> Callable[..., None]:
        def every(**given: object) -> None:
            through: dict[str, Exception] = {}
            for attack in names:
                try:
                    test(attack=attack, **given)
                except Exception as error:
                    through[attack] = error
            if through:
                first = next(iter(through))
                raise AssertionError(f"got through: {', '.join(through)}; {first}:") from through[first]

        signature = inspect.signature(test)
        parameters = [p for name, p in signature.parameters.items() if name != "attack"]
        every.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # for pytest
        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(every, name, getattr(test, name))
        every.__dict__.update(test.__dict__)
        return every

    return fold

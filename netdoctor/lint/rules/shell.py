"""What the shell does that its author did not mean."""

import re
from collections.abc import Iterator
from itertools import pairwise

from netdoctor.lint.files import Dockerfile, Shell
from netdoctor.lint.launches import TORCH
from netdoctor.lint.model import Found, Kind, Position, Severity, rule
from netdoctor.lint.program import Text

BASH = "https://www.gnu.org/software/bash/manual/bash.html"
LAUNCHERS = (*TORCH, "accelerate", "deepspeed", "ray", "mpirun", "srun", "docker", "python")
RELEVANT = re.compile(
    r"(NCCL|GLOO|TORCH|UCX|OMPI|PET|SLURM)_\w+|MASTER_(ADDR|PORT)|WORLD_SIZE|(LOCAL_|NODE_|GROUP_)?RANK|"
    r"CUDA_VISIBLE_DEVICES|OMP_NUM_THREADS|NNODES|NPROC_PER_NODE|GPUS_PER_NODE|NUM_(GPUS|NODES)|LD_LIBRARY_PATH"
)
DASHES = ("\u2010", "\u2011", "\u2012", "\u2013", "\u2014", "\u2212", "\uff0d")
_FETCH = ("curl", "wget")
_SHELL = re.compile(r"\s*(sudo\s+)?(ba|z)?sh\b")
_URL = re.compile(r"https?://(\S+)")


def _is_view(url: "re.Match[str] | None") -> bool:
    """Whether an address is that of a page on which a forge shows a file."""
    if url is None:
        return False
    host, _, path = url[1].removeprefix("www.").partition("/")
    if host == "github.com":
        return path.split("/")[2:3] in (["blob"], ["tree"])
    return "/src/branch/" in path or (host == "gitlab.com" and "/-/blob/" in path)


@rule(Severity.ERROR, Shell, Kind.SHELL, f"{BASH}#Shell-Parameters")
def shell_assign_spaces(shell: Shell) -> Iterator[Found]:
    """No spaces stand around the = of an assignment.

    What happens:
        The shell looks for a program of the variable's name and gives it = and the value as words: "command
        not found". The variable keeps what it had.
    Write instead:
        NAME=value.
    Wrong:
        MASTER_PORT = 29500
        torchrun --master-port "$MASTER_PORT" train.py
    Right:
        MASTER_PORT=29500
        torchrun --master-port "$MASTER_PORT" train.py
    """
    for command in shell.script.commands:
        words = command.words
        keyword = words[0].text if words[0].text in ("export", "declare", "readonly") else ""
        words = words[1:] if keyword else words
        name, sign = (words[0].raw, words[1].value.head) if len(words) > 1 else ("", "")
        if not sign.startswith("=") or not RELEVANT.fullmatch(name) or name in shell.script.functions:
            continue
        rest = sign[1:] or (words[2] if len(words) > 2 else "")
        what = f"{keyword} refuses the =" if keyword else f"the shell runs a program called {name}"
        yield Found(words[0].position, f"spaces around =: {what}, and {name} is not set", f"{name}={rest}")


@rule(Severity.WARNING, Shell, Kind.SHELL, f"{BASH}#Command-Execution-Environment")
def shell_export_lost(shell: Shell) -> Iterator[Found]:
    """Variables are set in the shell that starts the job.

    What happens:
        Parentheses and every part of a pipeline run in a shell of their own. What is set there is gone at its
        end: the job that is started afterwards does not see it.
    Write instead:
        The assignment outside; for a loop over lines: while read …; do …; done < file.
    Wrong:
        cat cluster.env | while read -r line; do export MASTER_ADDR=node0; done
        torchrun --nnodes 2 --node-rank 0 --master-addr "$MASTER_ADDR" train.py
    Right:
        export MASTER_ADDR=node0
        torchrun --nnodes 2 --node-rank 0 --master-addr "$MASTER_ADDR" train.py
    """
    script = shell.script
    outside = {a.name for a in script.assignments if not a.lost and a.how != "command"}
    starts = [(index, c) for index, c in enumerate(script.commands) if c.name in (*LAUNCHERS, "bash", "sh")]
    for a in script.assignments:
        if not a.lost or a.how not in ("export", "") or a.name in outside or not RELEVANT.fullmatch(a.name):
            continue
        later = [
            c
            for index, c in starts
            if index >= a.statement
            and c.position.path == a.position.path
            and c.position.line > a.position.line
        ]
        if later and (
            a.how == "export" or any(f"${a.name}" in c.raw or f"${{{a.name}" in c.raw for c in later)
        ):
            yield Found(
                a.position,
                f"{a.name} is set in {a.lost} and gone at its end: {later[-1].name} in line "
                f"{later[-1].position.line} does not see it",
                "set it outside",
            )


@rule(Severity.ERROR, Shell, Kind.SHELL, f"{BASH}#Single-Quotes")
def shell_single_quotes(shell: Shell) -> Iterator[Found]:
    """Variables that the shell should expand are in double quotes, or not quoted.

    What happens:
        The shell expands nothing between single quotes. The job gets a $ and the variable's name as its
        value, and looks for a host or a number of that name.
    Write instead:
        Double quotes.
    Wrong:
        export MASTER_ADDR='$HOSTNAME'
        torchrun --nnodes 2 --node-rank 0 --master-addr "$MASTER_ADDR" train.py
    Right:
        export MASTER_ADDR="$HOSTNAME"
        torchrun --nnodes 2 --node-rank 0 --master-addr "$MASTER_ADDR" train.py
    """
    for a in shell.script.assignments:
        text = a.value.text
        if (
            a.literal
            and text
            and RELEVANT.fullmatch(a.name)
            and re.fullmatch(r"\$(\w+|\{\w+\}|\(.*\))(:\d+)?", text)
        ):
            yield Found(
                a.position,
                f"single quotes: the value of {a.name} is the text {text} itself: the shell does "
                "not expand it",
                f'{a.name}="{text}"',
            )
    for launch in shell.launches_of(*TORCH, "accelerate", "ray"):
        for option in launch.options if not launch.level else ():
            word = option.value
            if word is not None and word.literal and re.search(r"\$\w|\$\{|\$\(", word.text or ""):
                yield Found(
                    word.position,
                    f"single quotes: --{option.name} gets the text {word.text} itself, which nothing "
                    "fills in",
                    "double quotes",
                )


@rule(Severity.ERROR, Shell, Kind.SHELL, f"{BASH}#Escape-Character")
def shell_continuation(shell: Shell) -> Iterator[Found]:
    r"""A command over several lines is one command.

    What happens:
        A backslash continues a line only as its last character: with a space behind it, with a comment on the
        next line, or where it is missing, the command ends there. The launcher starts without the options
        below, and the shell runs the first of them as a program: "--nnodes: command not found".
    Write instead:
        The backslash last on each line but the last, and comments above the command.
    Wrong:
        torchrun --nnodes 2 \
            --nproc-per-node 8
            --node-rank 0 --master-addr node0 train.py
    Right:
        torchrun --nnodes 2 \
            --nproc-per-node 8 \
            --node-rank 0 --master-addr node0 train.py
    """
    lines = shell.file.lines
    last = -9  # the line of the piece before
    for command in shell.script.commands:
        first = command.words[0]
        row = first.position.line - 1  # of the line above, from 1
        if (
            command.level
            or first.position.path
            or not first.raw.startswith("--")
            or len(first.raw) < 3
            or not 0 < row <= len(lines)
        ):
            continue
        if lines[row][: first.position.col - 1].strip():
            continue  # not the first word of its line
        above = lines[row - 1]
        if re.search(r"\\[ \t]+$", above):
            position = Position(row, len(above.rstrip()))
            what = "a space behind the backslash"
        elif above.lstrip().startswith("#"):
            position = Position(row, len(above) - len(above.lstrip()) + 1)
            what = "a comment inside of the command"
        elif re.search(r"\\[ \t]+#", above):
            position = Position(row, above.index("\\") + 1)
            what = "a comment behind the backslash"
        elif above.strip() and not above.rstrip().endswith("\\"):
            position = Position(row, len(above.rstrip()))
            what = "no backslash at the end of the line"
        else:
            continue
        last, before = row, last
        if row - before <= 3:
            continue  # the next piece of what is told already
        yield Found(
            position,
            f"{what}: the command ends here, and the shell looks for a program called "
            f"{first.raw.split('=')[0]}",
            "a backslash as the very last character of the line, and no comment between",
        )


@rule(Severity.ERROR, Text, Kind.SBATCH, "Slurm src/sbatch/sbatch.c, Batch script contains DOS line breaks")
def shell_crlf(file: Text) -> Iterator[Found]:
    r"""A script has the line ends of Unix.

    What happens:
        sbatch refuses a file with DOS line breaks. A shell takes the carriage return for a part of each last
        word: "bad interpreter", "$'\r': command not found", and a MASTER_PORT that is not a number.
    Write instead:
        dos2unix FILE, or sed -i 's/\r$//' FILE.
    Wrong:
        #!/bin/bash<CR>
        #SBATCH --nodes=2<CR>
        srun hostname<CR>
    Right:
        #!/bin/bash
        #SBATCH --nodes=2
        srun hostname
    """
    if file.crlf and file.kind in (Kind.SBATCH, Kind.SHELL, Kind.HOSTFILE, Kind.DEEPSPEED_ENV):
        what = (
            "sbatch refuses the file"
            if file.kind is Kind.SBATCH
            else "the carriage return becomes a part of the last word"
        )
        yield Found(Position(1), f"the lines end as on Windows: {what}", "dos2unix, or sed -i 's/\\r$//'")


@rule(Severity.ERROR, Shell, Kind.SHELL, "https://docs.python.org/3/library/argparse.html#prefix-chars")
def shell_dash(shell: Shell) -> Iterator[Found]:
    r"""Options begin with a hyphen, and numbers are of ASCII's digits.

    What happens:
        Web pages turn hyphens into longer dashes, and a copied command keeps them. The launcher takes such a
        word for the training script or for one of its arguments: "can't open file", or one process. Curly
        quotes and full-width digits become a part of the value.
    Write instead:
        The hyphen of the keyboard, twice where the option has two.
    Wrong:
        torchrun –-nproc_per_node 8 train.py
    Right:
        torchrun --nproc_per_node 8 train.py
    """  # noqa: RUF002 - what it is about
    for launch in shell.launches:
        for word in launch.command.words:
            if (text := word.text) and text[0] in DASHES:
                fixed = text.lstrip("".join(DASHES) + "-")
                yield Found(
                    word.position,
                    f"{text.split('=')[0]} begins with U+{ord(text[0]):04X}, a dash that is not a hyphen: "
                    f"{launch.program} takes it for no option",
                    f"--{fixed}" if len(fixed.split("=")[0]) > 1 else f"-{fixed}",
                )
            elif text and (odd := re.search("^[\u201c\u201d\u2018\u2019]|[\uff10-\uff19]", text)):
                yield Found(
                    word.position,
                    f"{text} has U+{ord(odd[0]):04X} in it, no quote or digit to a shell: it becomes part "
                    "of the value",
                    "the character of the keyboard",
                )


@rule(Severity.ERROR, Shell, Kind.SHELL, "https://docs.github.com/en/repositories/working-with-files")
def pipe_html(shell: Shell) -> Iterator[Found]:
    """What is piped into a shell is a script and not a web page.

    What happens:
        The address is that of the page that shows the file. The shell gets HTML: "syntax error near
        unexpected token `newline'", as root where sudo stands before it.
    Write instead:
        The address of the raw file, saved and read before it is run.
    Wrong:
        curl -fsSL https://github.com/example/tool/blob/main/install.sh | sudo bash
    Right:
        curl -fsSLO https://raw.githubusercontent.com/example/tool/main/install.sh
    """
    for pipeline in shell.script.pipelines:
        if len(pipeline) < 2 or pipeline[0].name not in _FETCH:
            continue
        last = [word.text for word in pipeline[-1].words[:3]]
        if not {"bash", "sh", "zsh"} & {(text or "").rpartition("/")[2] for text in last}:
            continue
        for word in pipeline[0].words:
            if _is_view(_URL.match(word.text or "")):
                yield Found(
                    word.position,
                    "this is the address of a web page: the shell is given HTML and ends with a syntax error",
                    "the raw file's address, saved and read first",
                )


def _fetches_page(commands: str) -> bool:
    """Whether the last of some commands fetches what a forge shows, and not the file itself."""
    last = re.split("[;&]", commands)[-1]
    fetch = re.search(r"\b(curl|wget)\b", last)
    return fetch is not None and any(map(_is_view, _URL.finditer(last, fetch.end())))


@rule(Severity.ERROR, Dockerfile, Kind.DOCKERFILE, "https://docs.docker.com/reference/dockerfile/")
def docker_html(dockerfile: Dockerfile) -> Iterator[Found]:
    """What a build pipes into a shell is a script and not a web page.

    What happens:
        The address is that of the page that shows the file: the shell gets HTML, and the build ends with a
        syntax error, or goes on without what was to be installed.
    Write instead:
        The address of the raw file.
    Wrong:
        FROM ubuntu:24.04
        RUN curl -fsSL https://github.com/example/tool/blob/main/install.sh | bash
    Right:
        FROM ubuntu:24.04
        RUN curl -fsSL https://raw.githubusercontent.com/example/tool/main/install.sh | bash
    """
    for position, rest in dockerfile.instructions_of("RUN"):
        if any(_fetches_page(one) and _SHELL.match(other) for one, other in pairwise(rest.split("|"))):
            yield Found(
                position,
                "this is the address of a web page: the shell is given HTML",
                "the raw file's address",
            )

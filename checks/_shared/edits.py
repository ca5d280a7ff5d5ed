"""Commands that change a node's files and leave what else is in them. All can be pasted twice.

file: a word of the shell (a path as it is, or quoted).
"""

from netdoctor.checks._shared.text import quoted

# Ends a last line that has no end: what is appended would become part of it.
END_LAST_LINE = '{ [ -z "$(tail -c 1 "$f" 2>/dev/null)" ] || echo >> "$f"; }'


def append(word: str, file: str = "") -> str:
    """Appends a line, given as a word of the shell, unless it is there. file: "" for the shell's own $f."""
    add = f'{{ grep -qsxF {word} "$f" || {{ {END_LAST_LINE}; echo {word} >> "$f"; }}; }}'
    return f"f={file}; {add}" if file else add


def assign(name: str, value: str | None, file: str) -> tuple[str, str]:
    """Make ``NAME=VALUE`` the only line of a name, or take its lines out; and what takes that back.

    Lines that were there stay as comments.
    """
    mark = f"#netdoctor {name}"
    back = f"sed -i -e '/^{mark}$/{{N;d;}}' -e 's/^{mark}=/{name}=/'"
    out = f"sed -i 's/^{name}=/{mark}=/'"
    if value is None:
        return f"{out} {file}", f"{back} {file}"
    line = f"printf '%s\\n' '{mark}' {quoted(f'{name}={value}')} >> \"$f\""
    steps = ('touch "$f"', f'{back} "$f"', f'{out} "$f"', END_LAST_LINE, line)
    return f"f={file}; {' && '.join(steps)}", f"{back} {file}"

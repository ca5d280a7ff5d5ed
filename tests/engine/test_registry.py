"""Which checks there are, where they come from, and which run; plug-ins cost nobody else anything."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from netdoctor.check import REGISTERED, CheckError, Profile, check, describe
from netdoctor.engine import registry
from netdoctor.engine.registry import Plugin, Registry, load, load_builtin, ordered, select
from netdoctor.engine.run import Options, Scan
from netdoctor.errors import InputError
from netdoctor.facts.base import FACT_TYPES
from netdoctor.facts.software import Job
from netdoctor.measure.declare import EXPERIMENTS
from tests.core.fake import login, saying, targets
from tests.strangers import strangers

GOOD = '''
from collections.abc import Iterator
from netdoctor.check import check
from netdoctor.facts.host import HostFacts
from netdoctor.model import Finding

@check({options})
def {name}(host: HostFacts) -> Iterator[Finding]:
    """All is well."""
    yield from ()
'''


# A fact of its own, measured by an experiment of its own, and a check of it.
MEASURED = '''
from dataclasses import dataclass
from netdoctor.facts import fact
from netdoctor.measure.declare import Context, experiment

@fact("acme", scope="cluster", origin="measure")
@dataclass(frozen=True)
class Mine:
    word: str

@experiment(bound_s=1.0{options})
def {name}(context: Context) -> {made}:
    """Says a word."""
    return Mine("hello")
'''


def measured(name: str = "acme_try", options: str = "", made: str = "Mine", check: str = "acme_word") -> str:
    text = MEASURED.format(name=name, options=options, made=made)
    return text + good(check).replace(": HostFacts", ": Mine")


TWO = '''
@fact("acme2", scope="cluster", origin="measure")
@dataclass(frozen=True)
class Other:
    word: str

@experiment(bound_s=1.0, after=["acme"])
def acme_other(context: Context) -> Other:
    """Says another."""
    return Other("hello")
'''

FACT = "from netdoctor.facts.base import fact\n@fact('acme'{})\nclass Mine: ...\n\n"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    load_builtin()
    checks, facts, experiments = dict(REGISTERED), dict(FACT_TYPES), dict(EXPERIMENTS)
    yield
    for table, before in ((REGISTERED, checks), (FACT_TYPES, facts), (EXPERIMENTS, experiments)):
        table.clear()
        table.update(before)  # type: ignore[arg-type]


def folder(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def good(name: str, options: str = "") -> str:
    return GOOD.format(name=name, options=options)


def loaded(place: Path) -> tuple[Registry, dict[str, Plugin]]:
    found = load(plugins=False, folders=[place])
    return found, {Path(plugin.name).stem: plugin for plugin in found.plugins}


def test_built_in_checks_are_there_and_in_order() -> None:
    known = load_builtin()
    assert "ssh.login" in known
    assert list(known) == sorted(known)
    assert next(c.id for c in ordered(known.values())) == "ssh.login"


def test_prerequisites_come_first() -> None:
    seen: set[str] = set()
    known = load_builtin()
    for one in ordered(known.values()):
        assert {a for a in one.after if a in known} <= seen
        seen.add(one.id)


def test_a_folder_adds_checks_and_private_files_do_not(tmp_path: Path) -> None:
    found, plugins = loaded(folder(tmp_path, a=good("acme_a"), _b=good("acme_b")))
    assert plugins["a"].checks == ("acme.a",)
    assert "acme.a" in found.checks
    assert "acme.b" not in found.checks


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("def broken(:", "SyntaxError", id="no Python"),
        pytest.param(good("acme_first") + "raise ValueError('x')", "ValueError: x", id="raises"),
        pytest.param("import sys; sys.exit(0)", "SystemExit", id="exits"),
        pytest.param("import acme_nowhere", "ModuleNotFoundError", id="import missing"),
        pytest.param(good("nofamily"), "family_property", id="no family in the name"),
        pytest.param(good("acme_x").replace('"""All is well."""', ""), "docstring", id="no docstring"),
        pytest.param(good("acme_x").replace(": HostFacts", ": int"), "which is not a fact", id="no fact"),
        pytest.param(good("acme_x").replace(": HostFacts", ": Ghost"), "NameError", id="no such type"),
        pytest.param(good("acme_x", 'profile="huge"'), "huge", id="no such profile"),
        pytest.param(good("acme_x", 'after="ssh.login"'), "list of check ids", id="after is a string"),
        pytest.param(good("host_shm"), "already defined", id="a built-in's id"),
        pytest.param(
            "from netdoctor.facts.base import fact\n@fact('host')\nclass Mine: ...\n",
            "fact group",
            id="a taken group",
        ),
        pytest.param(
            good("acme_x")
            .replace(
                "@check",
                FACT.format(", collector='no.py'") + "@check",
            )
            .replace(": HostFacts", ": Mine"),
            "FileNotFoundError",
            id="no collector file",
        ),
        pytest.param(measured() + "raise ValueError('x')", "ValueError: x", id="raises after its experiment"),
        pytest.param(
            measured(made="int"), "write a fact of origin measure", id="an experiment makes no fact"
        ),
        pytest.param(measured(name="ports"), "ports has that name", id="a built-in experiment's name"),
        pytest.param(measured(options=", after='ports'"), "a list of fact groups", id="after is a text"),
        pytest.param(
            measured(options=", after=['acme2']") + TWO, "wait for each other", id="experiments in a circle"
        ),
        pytest.param(
            measured().replace("@experiment", "@(lambda **options: lambda function: function)"),
            "no experiment makes it",
            id="measured by nobody",
        ),
    ],
)
def test_a_broken_file_costs_itself(tmp_path: Path, text: str, words: str) -> None:
    found, plugins = loaded(folder(tmp_path, bad=text, ok=good("acme_ok")))
    assert words in str(plugins["bad"].error)
    assert plugins["bad"].checks == ()
    assert "acme.ok" in found.checks
    assert "acme.first" not in found.checks
    assert set(load_builtin()) <= set(found.checks)
    assert "acme.first" not in REGISTERED
    assert {one.origin.split(".")[0] for one in EXPERIMENTS.values()} == {"netdoctor"}


def test_a_file_brings_an_experiment(tmp_path: Path) -> None:
    place = folder(tmp_path, a=measured())
    for _ in range(2):
        found, plugins = loaded(place)
        assert plugins["a"].error is None
        assert EXPERIMENTS["acme-try"].groups == ("acme",)
        wanted = [found.checks["acme.word"]]
        assert [step.experiment.name for step in Scan(targets(2), wanted, Job(), Options()).plan] == [
            "acme-try"
        ]


@pytest.mark.parametrize("what", [".", "a.py", "_b.py", "__pycache__"])
def test_what_a_stranger_could_have_written_is_not_run(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = tmp_path / "canary"
    place = folder(tmp_path, a=f"open({str(canary)!r}, 'w').close()\n" + good("acme_a"), _b="")
    (place / "__pycache__").mkdir()
    path = place / what
    mode = path.stat().st_mode & 0o777
    for more in (0o020, 0o002):
        path.chmod(mode | more)
        with pytest.raises(InputError, match=rf"--checks-dir .*others may write.*chmod go-w {path}"):
            loaded(place)
    path.chmod(mode)
    with strangers(monkeypatch, path), pytest.raises(InputError, match="belongs to uid 4321; take a copy"):
        loaded(place)
    assert not canary.exists()
    loaded(place)
    assert canary.exists()


def test_a_link_in_a_folder_of_checks_is_followed_to_what_is_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "place").mkdir()
    elsewhere = folder(tmp_path, a=good("acme_a")) / "a.py"
    link = tmp_path / "place" / "a.py"
    link.symlink_to(elsewhere)
    assert "acme.a" in loaded(tmp_path / "place")[0].checks
    for theirs, why in ((link, "a link that belongs to uid 4321"), (elsewhere, "it belongs to uid 4321")):
        with strangers(monkeypatch, theirs), pytest.raises(InputError, match=why):
            loaded(tmp_path / "place")


def test_a_file_that_prints_keeps_off_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded(folder(tmp_path, a="print('hello')\n" + good("acme_a")))
    assert capsys.readouterr().out == ""


def test_equal_file_names_in_two_folders_are_two_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        folder(tmp_path / name, same=good(f"acme_{name}"))
    found = load(plugins=False, folders=[tmp_path / "one", tmp_path / "two"])
    assert {"acme.one", "acme.two"} <= set(found.checks)


def test_loading_twice_is_the_same(tmp_path: Path) -> None:
    text = good("acme_a").replace("@check", FACT.format("") + "@check")
    place = folder(tmp_path, a=text)
    first, second = loaded(place), loaded(place)
    assert first[1] == second[1]
    assert list(first[0].checks) == list(second[0].checks)


def test_an_entry_point_loaded_twice_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[int] = []

    class Entry:
        name, dist = "acme", None

        def load(self) -> None:
            if not imported:  # as the second import of a module
                imported.append(1)
                REGISTERED["acme.a"] = saying("acme.a", origin="acme")

    monkeypatch.setattr(registry.importlib.metadata, "entry_points", lambda group: [Entry()])
    assert load().plugins == load().plugins == [Plugin(name="acme", checks=("acme.a",))]


def test_a_circle_costs_the_plug_ins_in_it(tmp_path: Path) -> None:
    place = folder(
        tmp_path,
        a=good("acme_a", 'after=["acme.b"]'),
        b=good("acme_b", 'after=["acme.a"]'),
        ok=good("acme_ok"),
    )
    found, plugins = loaded(place)
    assert "wait for each other" in str(plugins["a"].error)
    assert "wait for each other" in str(plugins["b"].error)
    assert plugins["ok"].error is None
    assert "acme.ok" in {c.id for c in select(found.checks, Profile.FULL)}
    assert "acme.a" not in found.checks


def test_a_folder_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        load(plugins=False, folders=[tmp_path / "nowhere"])


CHECKS = {
    c.id: c
    for c in (
        login(),
        saying("net.ports", profile="launch", after=["net.interface"]),
        saying("net.interface"),
        saying("bw.pair", profile="full"),
        saying("host.shm"),
        saying("ssh.mesh", profile="asked"),
    )
}


@pytest.mark.parametrize(
    ("profile", "only", "skip", "ids"),
    [
        pytest.param("quick", [], [], "ssh.login host.shm net.interface", id="quick"),
        pytest.param(
            "launch", [], [], "ssh.login host.shm net.interface net.ports", id="launch includes quick"
        ),
        pytest.param("full", [], [], "ssh.login bw.pair host.shm net.interface net.ports", id="full"),
        pytest.param(
            "quick", ["bw.pair"], [], "ssh.login bw.pair", id="only asks for a larger profile's check"
        ),
        pytest.param("launch", ["net.*"], [], "ssh.login net.interface net.ports", id="glob"),
        pytest.param("launch", ["net.*"], ["net.i*"], "ssh.login net.ports", id="only and skip"),
        pytest.param("quick", [], ["ssh.*"], "ssh.login host.shm net.interface", id="login stays"),
        pytest.param("quick", ["ssh.login"], [], "ssh.login", id="login alone"),
    ],
)
def test_select(profile: str, only: list[str], skip: list[str], ids: str) -> None:
    chosen = [c.id for c in select(CHECKS, Profile(profile), only, skip)]
    assert sorted(chosen) == sorted(ids.split())
    assert chosen[0] == "ssh.login"


def test_what_has_to_be_asked_for_runs_where_it_is_named() -> None:
    def ids(*only: str, also: tuple[str, ...] = (), skip: tuple[str, ...] = ()) -> set[str]:
        return {c.id for c in select(CHECKS, Profile.FULL, only, skip, also=also)} - {"ssh.login"}

    assert "ssh.mesh" not in ids() | ids("*", "ssh.*")
    assert ids("ssh.mesh") == {"ssh.mesh"}
    assert ids(also=("ssh.m*",)) == {*CHECKS} - {"ssh.login"}
    assert ids("net.ports", also=("ssh.mesh",)) == {"net.ports", "ssh.mesh"}
    assert "ssh.mesh" not in ids(also=("ssh.mesh",), skip=("ssh.*",))
    with pytest.raises(InputError, match=r"did you mean ssh\.mesh"):
        ids(also=("ssh.mehs",))


@pytest.mark.parametrize(
    ("only", "skip", "words"),
    [
        pytest.param(["net.port"], [], "did you mean net.ports", id="close"),
        pytest.param(["zzz*"], [], "netdoctor checks list", id="far"),
        pytest.param([], ["nope"], "no check is called", id="skip of nothing"),
        pytest.param(["net.*"], ["net.*"], "nothing is left", id="only minus skip"),
        pytest.param([], ["*"], "nothing is left", id="skip of all"),
        pytest.param(["net"], [], "'net'; did you mean net.*?", id="a family"),
        pytest.param(["NET.ports"], [], "did you mean", id="case matters"),
        pytest.param(["\x1b[31m"], [], r"\\x1b", id="escapes are told, not sent"),
    ],
)
def test_select_nothing_is_bad_input(only: list[str], skip: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        select(CHECKS, Profile.LAUNCH, only, skip)


@pytest.mark.parametrize(
    ("only", "skip", "via", "words"),
    [
        (["fs.*"], [], "ssh", "fs.shared: only where named in full, without *"),
        (["slurm.node"], [], "ssh", "slurm.node: only with --via slurm"),
        (["ssh.speed"], [], "slurm", "ssh.speed: only with --via ssh"),
        (["meet.task", "facts.file"], [], "ssh", "facts.file, meet.task: only with --facts or --meet"),
        (["net.ports"], ["net.*"], "ssh", "--skip removes everything that --only asks for"),
        (["fs.shared"], ["fs.*"], "ssh", "--skip removes everything that --only asks for"),
    ],
)
def test_why_nothing_is_left_to_run_is_said(only: list[str], skip: list[str], via: str, words: str) -> None:
    """--skip is not blamed where none was given."""
    checks = {c.id: c for c in (
        login(), saying("net.ports"), saying("fs.shared", profile="asked"), saying("slurm.node", via="slurm"),
        saying("ssh.speed", via="ssh"), saying("meet.task", via="meet"), saying("facts.file", via="facts"),
    )}  # fmt: skip
    with pytest.raises(InputError) as error:
        select(checks, Profile.LAUNCH, only, skip, via)
    assert str(error.value) == f"nothing is left to run: {words}"


def test_a_circle_of_our_own_is_told() -> None:
    circle = [saying("net.a", after=["net.b"]), saying("net.b", after=["net.a"])]
    with pytest.raises(InputError, match=r"net.a -> net.b|net.b -> net.a"):
        ordered(circle)


def test_the_decorator_returns_the_function_unchanged() -> None:
    from netdoctor.facts.host import HostFacts
    from netdoctor.model import Finding

    def acme_plain(host: HostFacts) -> Iterator[Finding]:
        """Fine."""
        yield from ()

    assert check()(acme_plain) is acme_plain
    assert REGISTERED["acme.plain"].title == "Fine."


def test_a_check_does_not_wait_for_itself() -> None:
    assert saying("net.a", after=["net.a", "ssh.login"]).after == ("ssh.login",)


def test_names_become_ids() -> None:
    assert saying("net.path-mtu").id == "net.path-mtu"
    assert saying("net.path-mtu").family == "net"
    with pytest.raises(CheckError):
        describe(
            lambda: [],
            after=(),
            explains=(),
            profile="quick",
            cost="",
            required=True,
            root=False,
            source=None,
        )

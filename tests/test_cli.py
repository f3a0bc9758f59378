"""The command line: what it prints is true and parses, and every error is one line and exit code 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import pebbling.cli
from pebbling import Hierarchical, Mixed, Online, Periodic, Revolve, StoreAll, Tier, plan
from pebbling.cli import main
from pebbling.drive import Report
from pebbling.graph import Graph, Node, Storage, save, solve
from pebbling.peaks import Moment, Story, Why
from pebbling.show import compare, read_sheet, table
from pebbling.store import Disk

PROBLEM = {"steps": "2e3", "state": "4GB", "tape": "8GB", "forward": "0.5s", "backward": "1s", "memory": "64GB"}
DISK = {"disk": "400GB", "disk-write": "2GB/s", "disk-read": "3GB/s"}

HIERARCHY = ["--state", "1GB", "--disk", "3GB", "--disk-write", "1GB/s", "--disk-read", "500MB/s"]
HIERARCHY += ["--forward", "2s", "--backward", "3s"]


def options(problem: dict[str, str]) -> list[str]:
    return [part for name, value in problem.items() for part in (f"--{name}", value)]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_plan_prints_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *options(PROBLEM | DISK)]) == 0
    found = plan(2000, **{name.replace("-", "_"): size for name, size in (PROBLEM | DISK).items() if name != "steps"})
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert set(str(found).splitlines()[1:]) <= set(printed.splitlines())
    assert printed.startswith(f"schedule         {type(found.schedule).__name__}: 2,000 steps, ")


def test_plan_as_json_has_every_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *options(PROBLEM | DISK), "--json", "--save", "plan.svg"]) == 0
    captured = capsys.readouterr()
    content = json.loads(captured.out)
    found = plan(2000, **{name.replace("-", "_"): size for name, size in (PROBLEM | DISK).items() if name != "steps"})
    assert content["peak"] == found.peak
    for name in ("forwards", "time", "bound", "gap", "overhead"):
        assert content[name] == getattr(found, name)
    assert content["problem"]["disk_write"] == 2e9
    assert read_sheet(content).schedule == found.schedule
    assert captured.err == "picture: plan.svg\n"
    ElementTree.parse("plan.svg")


@pytest.mark.parametrize(
    ("arguments", "schedule"),
    [
        (["revolve", "--slots", "4"], Revolve(30, 4)),
        (["periodic", "--slots", "4"], Periodic(30, 4)),
        (["online", "--slots", "4"], Online(4).ended(30)),
        (["storeall"], StoreAll(30)),
        (["mixed", "--slots", "4"], Mixed(30, 4)),
        (["mixed", "--slots", "4", "--state", "2GB", "--tape", "3GB"], Mixed(30, 4, 1.5)),
        (
            ["hierarchical", "--slots", "2", *HIERARCHY],
            Hierarchical(30, [Tier(2), Tier(3, 1.0, 2.0)], 2.0, 5.0),
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_one_family_can_be_shown(arguments, schedule, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--steps", "30", "--schedule", *arguments, "--json", "--save", "one.svg"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert read_sheet(content).schedule == schedule
    assert (content["forwards"], content["stores"]) == (schedule.cost.forwards, schedule.cost.stores)
    assert tuple(content["peak_states"].values()) == schedule.cost.peaks
    assert len(ElementTree.parse("one.svg").findall(".//{*}path/{*}title")) > 30


def test_a_backward_of_nothing_is_taken_as_given(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--slots", "2", "--state", "1GB", *options(DISK), "--forward", "2s", "--backward", "0s", "--json"]
    assert main(["plan", "--steps", "30", "--schedule", "hierarchical", *given]) == 0
    assert json.loads(capsys.readouterr().out)["schedule"]["backward"] == 2.0


def test_a_saved_plan_is_shown_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([*options(PROBLEM)], ["--steps", "20", "--schedule", "revolve", "--slots", "4"]):
        main(["plan", *arguments])
        printed = capsys.readouterr().out
        main(["plan", *arguments, "--json", "--save", "first.svg"])
        Path("plan.json").write_text(capsys.readouterr().out)
        assert main(["show", "plan.json", "--save", "again.svg"]) == 0
        assert capsys.readouterr().out == printed + "picture: again.svg\n"
        assert Path("again.svg").read_bytes() == Path("first.svg").read_bytes()


def test_a_report_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("Revolve(20, 4)", steps=20, forwards=59, minimum=59)
    Path("run.json").write_text(report.json())
    assert main(["show", "run.json"]) == 0
    assert capsys.readouterr().out == f"{report}\n"


def test_compare_prints_the_table_and_draws_the_chart(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["plan", "--compare", "--steps", "40", "--state", "1GB", "--tape", "3GB"]
    assert main([*given, "--memory", "12GB"]) == 0
    assert capsys.readouterr().out == f"{table(compare(40, 3))}\npicture: compare.svg\n"
    assert "budget: 7 states" in Path("compare.svg").read_text()  # 12 less 2 states and a tape of 3
    assert main([*given, "--json", "--save", "other.svg"]) == 0
    content = json.loads(capsys.readouterr().out)
    for curve, expected in zip(content["curves"], compare(40, 3).curves, strict=True):
        assert tuple(curve["forwards"]) == expected.forwards
    ElementTree.parse("other.svg")


def test_compare_takes_the_disk_that_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--state", "1GB", "--disk", "9GB", "--disk-write", "1GB/s", "--disk-read", "1GB/s", "--forward", "0.5s"]
    assert main(["plan", "--compare", "--steps", "40", *given]) == 0
    assert table(compare(40, 1, Tier(9, 1.0, 1.0), 0.5, 1.5)) in capsys.readouterr().out


def test_demo_puts_its_pictures_where_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    monkeypatch.setattr("pebbling.demo.demo", given.append)
    assert main(["demo"]) == 0
    assert main(["demo", "elsewhere"]) == 0
    assert given == ["demo", "elsewhere"]


def test_clean_lists_and_removes_what_a_dead_run_left(capsys: pytest.CaptureFixture[str]) -> None:
    program = (
        "import os, sys; from pebbling.store import Disk; s = Disk(sys.argv[1]); s.put(0, b'x' * 5000); os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", program, "left"], check=False)
    before = sorted(os.listdir("left"))
    assert main(["clean", "left"]) == 0
    listed = capsys.readouterr().out
    assert sorted(os.listdir("left")) == before
    assert "--yes removes them" in listed
    assert "KiB" in listed
    assert main(["clean", "left", "--only", "another-run", "--yes"]) == 0
    assert capsys.readouterr().out == "removed 0 files, 0 B\n"
    assert main(["clean", "left", "--yes"]) == 0
    assert "removed" in capsys.readouterr().out
    assert main(["clean", "left"]) == 0
    assert capsys.readouterr().out == "nothing was left here\n"


def test_clean_touches_no_live_store(capsys: pytest.CaptureFixture[str]) -> None:
    with Disk("live") as store:
        store.put(0, b"kept")
        assert main(["clean", "live", "--yes"]) == 2
        assert store.get(0) == b"kept"
    assert capsys.readouterr().err.count("\n") == 1


def test_bench_lists_and_runs_the_scripts_of_a_checkout(capfd: pytest.CaptureFixture[str]) -> None:
    Path("src/pebbling").mkdir(parents=True)
    Path("benchmarks").mkdir()
    Path("benchmarks/quick.py").write_text('"""How quick it is."""\nimport sys\nprint(*sys.argv[1:])\nsys.exit(3)\n')
    assert main(["bench"]) == 0
    assert capfd.readouterr().out.split() == ["quick", "How", "quick", "it", "is."]
    assert main(["bench", "quick", "--save", "there"]) == 3
    assert capfd.readouterr().out == "--save there\n"
    assert main(["bench", "slow"]) == 2
    assert "one of quick is expected" in capfd.readouterr().err


def test_bench_says_that_it_needs_a_checkout(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pebbling.cli, "__file__", str(tmp_path / "site-packages/pebbling/cli.py"))
    assert main(["bench"]) == 2
    assert "run this in a checkout of pebbling" in capsys.readouterr().err


ERRORS = {
    "too small a budget": (["--steps", "100", "--state", "3GB", "--memory", "3GB"], "need at least 12000000000 bytes"),
    "no state": (["--steps", "100"], "takes --state"),
    "half a step": (["--steps", "1.5", "--state", "1GB"], "'1.5' is not a whole number"),
    "infinitely many steps": (["--steps", "inf", "--state", "1GB"], "'inf' is not a whole number"),
    "fewer steps than none": (["--steps", "-3", "--state", "1GB"], "steps must be a whole number of at least 0"),
    "no steps": (["--state", "1GB"], "--steps"),
    "an unknown unit": (["--steps", "10", "--state", "3GX"], "unknown unit 'gx'"),
    "a disk without bandwidths": (["--steps", "10", "--state", "1GB", "--disk", "1TB"], "missing: disk_write"),
    "slots without a schedule": (["--steps", "10", "--state", "1GB", "--slots", "3"], "--slots goes with --schedule"),
    "a schedule without slots": (["--steps", "10", "--schedule", "revolve"], "needs --slots"),
    "slots where there are none": (["--steps", "10", "--schedule", "storeall", "--slots", "3"], "leave out --slots"),
    "no such schedule": (["--steps", "10", "--schedule", "magic", "--slots", "3"], "invalid choice: 'magic'"),
    "memory beside slots": (
        ["--steps", "10", "--schedule", "revolve", "--slots", "3", "--memory", "1GB"], "leave out --memory",
    ),
    "a disk that is not used": (
        ["--steps", "10", "--schedule", "revolve", "--slots", "3", "--disk", "1GB"], "leave out --disk",
    ),
    "a hierarchy without a disk": (
        ["--steps", "10", "--schedule", "hierarchical", "--slots", "3", "--state", "1GB"],
        "missing --forward, --disk, --disk-write, --disk-read",
    ),
    "a tape without a state": (["--steps", "10", "--schedule", "mixed", "--slots", "3", "--tape", "1GB"], "--tape"),
    "backward without forward": (
        ["--steps", "10", "--schedule", "revolve", "--slots", "3", "--backward", "1s"], "without forward",
    ),
    "no overlap of nothing": (["--steps", "10", "--state", "1GB", "--no-overlap"], "--no-overlap is for"),
    "a comparison with slots": (["--steps", "10", "--compare", "--slots", "3"], "leave out --slots"),
    "a comparison with times": (["--steps", "10", "--compare", "--forward", "3s"], "leave out --forward"),
    "a comparison in bytes": (["--steps", "10", "--compare", "--memory", "3GB"], "takes --state as well"),
    "a picture that is none": (["--steps", "10", "--state", "1GB", "--save", "p.pdf"], "name the file p.svg"),
    "a folder that is not there": (["--steps", "10", "--state", "1GB", "--save", "a/p.svg"], "no directory 'a'"),
    "an unknown option": (["--steps", "10", "--state", "1GB", "--magic"], "unrecognized arguments: --magic"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), ERRORS.values(), ids=ERRORS)
def test_errors_of_plan_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    _fails(["plan", *arguments], message, capsys)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "nothing.json: No such file"),
        ("not JSON", "is not JSON"),
        ('{"kind": "poem"}', "is of kind 'poem'"),
        ("[1, 2]", "is of kind None"),
        ('{"kind": "plan"}', "not a plan"),
        ('{"kind": "report", "colour": "red"}', "not the report of a run"),
    ],
)
def test_errors_of_show_are_one_line(content: str | None, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    if content is not None:
        Path("nothing.json").write_text(content)
    _fails(["show", "nothing.json"], message, capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["clean", "nowhere"], "no directory 'nowhere'"), (["fly"], "invalid choice: 'fly'")],
)
def test_other_errors_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    _fails(arguments, message, capsys)


def test_a_report_has_no_picture(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run.json").write_text(Report("Revolve(20, 4)", steps=20).json())
    _fails(["show", "run.json", "--save", "p.svg"], "leave out --save", capsys)


def _fails(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == ""
    assert captured.err.startswith("pebbling: error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_python_m_pebbling_is_the_same_command() -> None:
    run = [sys.executable, "-m", "pebbling", "plan", "--steps", "20", "--schedule", "revolve", "--slots", "4"]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("schedule         Revolve: 20 steps, 4 slots\n")
    failed = subprocess.run([*run, "--memory", "1GB"], capture_output=True, text=True, check=False)
    assert failed.returncode == 2
    assert failed.stderr.startswith("pebbling: error: ")


def test_names_are_bold_in_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from io import StringIO

    from pebbling.show.text import emphasised

    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    line = "schedule         Revolve"
    assert emphasised(line, StringIO()) == line
    assert emphasised(line, Terminal()) == "\x1b[1mschedule        \x1b[0m Revolve"
    monkeypatch.setenv("NO_COLOR", "1")
    assert emphasised(line, Terminal()) == line


def test_without_a_command_the_help_is_printed_and_the_version_is_the_packages(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == 0
    assert "plan" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"pebbling {pebbling.__version__}\n"


def test_show_reads_comparisons_graphs_plans_of_graphs_and_what_why_found(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["plan", "--steps", "100", "--compare", "--json"]) == 0
    (tmp_path / "comparison.json").write_text(capsys.readouterr().out)
    assert main(["show", "comparison.json"]) == 0
    assert capsys.readouterr().out == table(compare(100)) + "\n"

    graph = Graph([Node("a", ("x",), (Storage("y", 8),), 1.0)], [Storage("x", 8, True)], ["y"], "small")
    save(graph, "graph.json.gz")
    assert main(["show", "graph.json.gz"]) == 0
    assert capsys.readouterr().out == f"{graph}\n"
    found = solve(graph, None)
    save(found, "plan.json")
    assert main(["show", "plan.json"]) == 0
    assert capsys.readouterr().out == f"{found}\n"

    why = Why(Story((Moment("mul", top=100),), ()))
    why.save("why.json")
    assert main(["show", "why.json"]) == 0
    assert "peak 100 B" in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b"\x1f\x8b\x00", b'{"kind": "why"}', b'{"kind": []}'])
def test_files_that_are_nothing_of_ours_get_a_line(content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    Path("broken.json").write_bytes(content)
    assert main(["show", "broken.json"]) == 2
    assert capsys.readouterr().err.startswith("pebbling: error: ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_names_every_command_and_flag(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(word in script for word in ("plan", "show", "why", "clean", "no-overlap", "only"))
    if shell == "bash":
        typed = f"{script}\nCOMP_WORDS=(pebbling clean --o); COMP_CWORD=2; _pebbling; echo ${{COMPREPLY[@]}}"
        done = subprocess.run(["bash", "-c", typed], capture_output=True, text=True, check=True)
        assert done.stdout == "--only\n"

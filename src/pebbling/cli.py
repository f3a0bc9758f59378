"""The command line: ``pebbling plan``, ``show``, ``why``, ``demo``, ``bench``, ``clean``, ``completion``.

Errors are one line on standard error and exit code 2. ``pebbling`` alone prints the help.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from . import __version__, show
from .chain import plan
from .documents import parsed
from .errors import DamagedFile, PebblingError
from .graph.files import FORMATS, load
from .peaks.report import summary
from .show.named import FAMILIES, disk_tier, in_numbers, named, tape_ratio, turn_time
from .show.svg import svg_path
from .show.text import emphasised
from .units import format_bytes

_EXAMPLE = """example:
  pebbling plan --steps 1e6 --state 4GB --tape 8GB --forward 0.5s --backward 1s \\
      --memory 64GB --disk 4TB --disk-write 2GB/s --disk-read 3GB/s --save plan.svg"""
_PROBLEM = {
    "state": "bytes of one state, such as 4GB or 64MiB",
    "tape": "bytes of one step's tape (default: as a state)",
    "forward": "time of one step, such as 0.5s or 20ms",
    "backward": "time of reversing one taped step (default: two forwards)",
    "memory": "budget of memory (default: no limit)",
    "disk": "budget of disk; needs its bandwidths",
    "disk-write": "bandwidth, such as 2GB/s",
    "disk-read": "bandwidth, such as 3GB/s",
}
_METAVARS = {"forward": "TIME", "backward": "TIME", "disk-write": "RATE", "disk-read": "RATE"}
_COMPARED = "compare.svg"
_COMPLETE = """_pebbling() {{
  local words
  if [ "$COMP_CWORD" -le 1 ]; then words='{commands} --version --help'; else
    case "${{COMP_WORDS[1]}}" in
{cases}    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _pebbling pebbling"""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.run is None:
        parser.print_help()
        return 0
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        _say_error(f"{error.filename}: {error.strerror}" if error.filename else error)
        return 2
    except (PebblingError, ValueError) as error:
        _say_error(error)
        return 2
    return code


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        _say_error(f"{message} (see {self.prog} --help)")
        sys.exit(2)


def _say_error(message: object) -> None:
    print(f"pebbling: error: {' '.join(str(message).split())}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="pebbling", description="Exact gradients within a budget: plan, look, measure, clean up.")
    parser.add_argument("--version", action="version", version=f"pebbling {__version__}")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(metavar="command")
    _add_plan(commands)

    shown = commands.add_parser("show", help="show what pebbling saved: a plan, a report, a comparison, a graph")
    shown.set_defaults(run=_show)
    shown.add_argument("file", help="from `pebbling plan --json`, `pebbling why --save`, a report, a model's plan")
    shown.add_argument("--save", metavar="FILE.svg", help="draw a picture of the plan")

    demo = commands.add_parser("demo", help="a first look: a simulation, its gradient in 1 %% of the memory, pictures")
    demo.set_defaults(run=_demo)
    demo.add_argument("directory", nargs="?", default="demo", help="where the pictures go (default: demo)")

    why = commands.add_parser(
        "why", help="why the peak of a model's training step, or of a NumPy gradient, is where it is"
    )
    why.set_defaults(run=_why)
    why.add_argument(
        "of",
        metavar="MODULE:FUNCTION",
        help="a function that returns, as a tuple, a model and its batch, or a NumPy function and its arguments",
    )
    why.add_argument("--save", metavar="FILE", help="a page (.html), .json, .perfetto.json or .pickle (memory_viz)")

    bench = commands.add_parser("bench", help="list the benchmarks of a checkout, or run one")
    bench.set_defaults(run=_bench)
    bench.add_argument("name", nargs="?", help="the one to run")
    bench.add_argument("rest", nargs=argparse.REMAINDER, help="its options")

    clean = commands.add_parser("clean", help="list what dead runs left in a directory, or remove it")
    clean.set_defaults(run=_clean)
    clean.add_argument("directory")
    clean.add_argument("--only", metavar="RUN", help="only what this run left")
    clean.add_argument("--yes", action="store_true", help="remove it")

    completion = commands.add_parser("completion", help="print what makes a shell complete pebbling's commands")
    completion.set_defaults(run=lambda options: _completion(options.shell, commands.choices))
    completion.add_argument(
        "shell", choices=("bash", "zsh", "fish"), help='bash and zsh: eval "$(pebbling completion bash)"'
    )
    return parser


def _add_plan(commands: Any) -> None:
    parser = commands.add_parser(
        "plan",
        help="the best schedule for a problem: as text, as JSON, as a picture",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=_plan)
    parser.add_argument("--steps", type=_whole_number, required=True, help="how many, such as 1000 or 1e6")
    problem = parser.add_argument_group("the problem")
    for name, what in _PROBLEM.items():
        problem.add_argument(f"--{name}", metavar=_METAVARS.get(name, "SIZE"), help=what)
    problem.add_argument("--no-overlap", action="store_true", help="transfers to disk stop the compute")
    instead = parser.add_argument_group("instead of the best schedule")
    instead.add_argument("--schedule", choices=FAMILIES, help="this family, with --slots in place of --memory")
    instead.add_argument("--slots", type=_whole_number, help="how many states fit in memory")
    instead.add_argument("--compare", action="store_true", help="forwards against memory, for every family")
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print JSON, which `pebbling show` reads")
    output.add_argument("--board", metavar="FILE.svg", help="draw the schedule being played, step by step, animated")
    output.add_argument("--save", metavar="FILE.svg", help=f"draw a picture (--compare: by default {_COMPARED})")


def _whole_number(text: str) -> int:
    try:
        number = int(text) if text.isdigit() else float(text)
        if number == int(number):
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number such as 1000 or 1e6")


def _plan(options: argparse.Namespace) -> int:
    for path in (options.save, options.board):
        if path is not None:
            svg_path(path)
    given = {name.replace("-", "_"): getattr(options, name.replace("-", "_")) for name in _PROBLEM}
    problem = in_numbers({"steps": options.steps, **given, "overlap": not options.no_overlap})
    if options.no_overlap and (problem["disk"] is None or options.schedule or options.compare):
        raise ValueError("--no-overlap is for the best schedule with a --disk: leave it out")
    if options.compare:
        return _compare(options, problem)
    if options.schedule is not None:
        return _say_sheet(show.Sheet(named(options.schedule, options.slots, problem), problem), options)
    if options.slots is not None:
        raise ValueError("--slots goes with --schedule; the best schedule within a budget takes --memory")
    if problem["state"] is None:
        raise ValueError("the best schedule takes --state, the bytes of one state; or use --schedule and --slots")
    found = plan(**problem)
    return _say_sheet(show.Sheet(found.schedule, problem, found), options)


def _say_sheet(sheet: show.Sheet, options: argparse.Namespace) -> int:
    as_json = "json" in options and options.json
    drawn = {}
    if "board" in options and options.board is not None:
        show.board(sheet.schedule, options.board)
        drawn["board"] = options.board
    print(json.dumps(sheet.json(), indent=2) if as_json else emphasised(sheet.text(), sys.stdout))
    if options.save is not None:
        sheet.picture(options.save)
        drawn["picture"] = options.save
    for what, path in drawn.items():
        print(f"{what}: {path}", file=sys.stderr if as_json else sys.stdout)
    return 0


def _compare(options: argparse.Namespace, problem: dict[str, Any]) -> int:
    has_disk = any(problem[name] is not None for name in ("disk", "disk_write", "disk_read"))
    unused = ["schedule", "slots", "board"] + ([] if has_disk else ["forward", "backward"])
    for name in unused:
        if getattr(options, name) is not None:
            raise ValueError(f"--compare counts the forwards of every family with any memory: leave out --{name}")
    ratio, times, budget = tape_ratio(problem), {}, None
    if has_disk:
        disk = disk_tier(problem)
        times = {"disk": disk, "forward": problem["forward"], "backward": turn_time(problem)}
    if problem["memory"] is not None:
        if problem["state"] is None:
            raise ValueError("--compare counts memory in states: --memory takes --state as well")
        budget = problem["memory"] / problem["state"] - 2 - ratio
    comparison = show.compare(problem["steps"], ratio, **times)
    print(json.dumps(comparison.json(), indent=2) if options.json else show.table(comparison))
    path = options.save or _COMPARED
    show.tradeoff(comparison, path, budget=budget)
    print(f"picture: {path}", file=sys.stderr if options.json else sys.stdout)
    return 0


def _show(options: argparse.Namespace) -> int:
    content = parsed(options.file)
    try:
        return _show_document(content, options)
    except (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        # All that is shown comes from the file.
        raise DamagedFile(f"{options.file} is damaged: {error!r}") from error


def _show_document(content: Any, options: argparse.Namespace) -> int:
    path = options.file
    kind = content.get("kind", content.get("format")) if isinstance(content, dict) else None
    if kind == "plan":
        return _say_sheet(show.read_sheet(content), options)
    if options.save is not None:
        raise ValueError(
            f"{path} is not the plan of a schedule, and there are pictures of such plans alone: leave out --save"
        )
    if kind == "report":
        text = str(show.read_report(content))
    elif kind == "comparison":
        text = show.table_of(content)
    elif kind == "why":
        text = summary(content)
    elif isinstance(kind, str) and kind in FORMATS:
        text = str(load(path))
    else:
        raise ValueError(
            f'{path} is of kind {kind!r}; a plan ("plan"), the report of a run ("report"), a "comparison", '
            f'what `pebbling why` found ("why"), a graph or its plan is expected'
        )
    print(emphasised(text, sys.stdout))
    return 0


def _completion(shell: str, commands: Mapping[str, argparse.ArgumentParser]) -> int:
    flags = {
        name: " ".join(flag for action in command._actions for flag in action.option_strings if flag.startswith("--"))
        for name, command in commands.items()
    }
    if shell == "fish":
        print(f"complete -c pebbling -n __fish_use_subcommand -f -a '{' '.join(commands)}'")
        for name, words in flags.items():
            for flag in words.split():
                print(f"complete -c pebbling -n '__fish_seen_subcommand_from {name}' -l {flag[2:]}")
        return 0
    if shell == "zsh":
        print("autoload -U +X bashcompinit && bashcompinit")
    cases = "".join(f"    {name}) words='{words}' ;;\n" for name, words in flags.items())
    print(_COMPLETE.format(commands=" ".join(commands), cases=cases))
    return 0


def _demo(options: argparse.Namespace) -> int:
    from .demo import demo

    demo(options.directory)
    return 0


def _why(options: argparse.Namespace) -> int:
    module, _, name = options.of.partition(":")
    if not name:
        raise ValueError(f"{options.of!r}: expected module:function, such as train:example in the folder of train.py")
    sys.path.insert(0, os.getcwd())
    try:
        function = getattr(import_module(module), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ValueError(f"{options.of}: {error}") from error
    made = function()
    if not isinstance(made, tuple) or len(made) < 2 or not callable(made[0]):
        raise ValueError(f"{options.of} returned {type(made).__name__}: expected a tuple of a model and its batch")
    model, batch = made[0], made[1] if len(made) == 2 else made[1:]
    positional, keywords = (), {}
    if isinstance(batch, dict):
        keywords = batch
    else:
        positional = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
    found = _why_of(model, positional, keywords)
    print(found)
    if options.save is not None:
        print(f"saved: {found.save(options.save)}")
    return 0


def _why_of(model: Any, positional: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """By the front end of the arguments' framework."""
    kinds = {type(each).__module__.partition(".")[0] for each in (*positional, *keywords.values())}
    if "numpy" in kinds and "torch" not in kinds:
        from .source.why import why as why_numpy

        if keywords:
            raise ValueError("a NumPy function takes its arguments by position: return a tuple in place of a dict")
        return why_numpy(model, *positional)
    from .torch import why

    return why(model, *positional, **keywords)


def _bench(options: argparse.Namespace) -> int:
    folder = _checkout() / "benchmarks"
    scripts = {script.stem: script for script in sorted(folder.glob("*.py"))}
    if options.name is None:
        for name, script in scripts.items():
            about = (ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "").partition("\n")[0]
            print(f"{name:<16} {about}")
        return 0
    if options.name not in scripts:
        raise ValueError(f"there is no benchmark {options.name!r} in {folder}: one of {', '.join(scripts)} is expected")
    return subprocess.run([sys.executable, str(scripts[options.name]), *options.rest], check=False).returncode


def _checkout() -> Path:
    """The root of the checkout that the command is run in, or that pebbling was imported from."""
    for folder in (Path.cwd(), *Path.cwd().parents, *Path(__file__).resolve().parents):
        if (folder / "benchmarks").is_dir() and (folder / "src" / "pebbling").is_dir():
            return folder
    raise ValueError("benchmarks come with the source: run this in a checkout of pebbling (benchmarks/, src/pebbling/)")


def _clean(options: argparse.Namespace) -> int:
    from .store.orphans import clean, orphans

    if not Path(options.directory).is_dir():
        raise ValueError(f"there is no directory {options.directory!r}")
    if options.yes:
        removed = clean(options.directory, options.only)
        print(f"removed {len(removed)} files, {format_bytes(sum(orphan.nbytes for orphan in removed))}")
        return 0
    found = [orphan for orphan in orphans(options.directory) if options.only in (None, orphan.run)]
    for orphan in found:
        note = "  (its run can be resumed)" if orphan.resumable else ""
        print(f"{format_bytes(orphan.nbytes):>10}  {orphan.path}{note}")
    total = format_bytes(sum(orphan.nbytes for orphan in found))
    print(f"{len(found)} files, {total}; --yes removes them" if found else "nothing was left here")
    return 0

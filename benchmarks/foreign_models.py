"""Models that others wrote, in budgets: bits, peaks and times beside plain eager mode and their own checkpointing.

    python benchmarks/foreign_models.py [--models llama,gat] [--write FILE]            on the CPU
    python benchmarks/foreign_models.py --device cuda [--minutes 8] [--write FILE]     the large ones, on a GPU

One process per model, so that a crash or a time-out is one row. Peaks are above what is there before a step,
gradients included: on the CPU by torch's own profiler, on a GPU by the allocator, of the first steps as of later
ones. Budgets: none, the peak of the library's own checkpointing, shares of what plain eager mode takes (of its
activations, or with ``--of peak`` of its whole peak), and the smallest one that a refusal names. A time is the best
of several turns, in each of which plain, own checkpointing and fit run one after the other; on the CPU it is the
processor time of one thread. Bits are those of the loss, every gradient, every buffer and the next random numbers.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import logging
import math
import os
import platform
import statistics
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from foreign_zoo import LARGE, SMALL, Built
from pebbling.errors import BudgetError
from pebbling.torch import fit

SHARES = (0.5, 0.3)
_STEPS = 3
"""Steps whose peaks are looked at one by one; the first of them may plan."""


# ---- one model, in its own process -------------------------------------------------------------------------------


class Steps:
    """Training steps of one model on one device."""

    def __init__(self, built: Built, cuda: bool) -> None:
        self.built, self.cuda = built, cuda
        self._state = copy.deepcopy(dict(built.model.named_buffers()))

    def once(self, run: Callable[..., Any], owner: torch.nn.Module) -> torch.Tensor:
        owner.zero_grad(set_to_none=True)
        loss = self.built.loss(run(*self.built.args, **self.built.keywords))
        loss.backward()
        return loss.detach()

    def peak(self, run: Callable[..., Any], owner: torch.nn.Module) -> int:
        """Bytes above those before one step."""
        owner.zero_grad(set_to_none=True)
        gc.collect()
        if not self.cuda:
            return _profiled(lambda: self.once(run, owner))
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        self.once(run, owner)
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before

    def bits(self, run: Callable[..., Any], owner: torch.nn.Module) -> list[Any]:
        """All that one step leaves: loss, gradients, buffers, what is drawn next."""
        device = "cuda" if self.cuda else "cpu"
        self._reset(owner)
        torch.manual_seed(5)
        loss = self.once(run, owner)
        left = [loss, *(None if p.grad is None else p.grad.clone() for p in owner.parameters())]
        left += [buffer.clone() for buffer in owner.buffers()] + [torch.rand(3), torch.rand(3, device=device)]
        self._reset(owner)
        return left

    def _reset(self, owner: torch.nn.Module) -> None:
        """Statistics as they were before the first step: every step changes them."""
        with torch.no_grad():
            for name, buffer in owner.named_buffers():
                buffer.copy_(self._state[name])

    def seconds(self, run: Callable[..., Any], owner: torch.nn.Module) -> float:
        """Of one step; on a GPU of three in a row."""
        if not self.cuda:
            begun = time.process_time()
            self.once(run, owner)
            return time.process_time() - begun
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(3):
            self.once(run, owner)
        last.record()
        last.synchronize()
        return first.elapsed_time(last) / 3e3

    def host_share(self, run: Callable[..., Any], owner: torch.nn.Module) -> float:
        """How much of a step on a GPU the host is busy to launch it."""
        torch.cuda.synchronize()
        begun = time.perf_counter()
        self.once(run, owner)
        launched = time.perf_counter() - begun
        torch.cuda.synchronize()
        return launched / (time.perf_counter() - begun)


def _profiled(step: Callable[[], Any]) -> int:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    events = profile.profiler.kineto_results.events()
    held = most = 0
    for event in sorted((each for each in events if each.name() == "[memory]"), key=lambda each: each.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def same(mine: list[Any], theirs: list[Any]) -> str:
    """Empty if all bits are the same, else how far they are apart."""
    far = 0.0
    for one, other in zip(mine, theirs, strict=True):
        if (one is None) != (other is None):
            return "a gradient is missing"
        if one is not None and not torch.equal(one, other) and not (one.isnan().all() and other.isnan().all()):
            far = max(far, float((one.double() - other.double()).abs().max() / (other.double().abs().max() + 1e-300)))
            far = max(far, 1e-300)
    return f"differs by {far:.0e}" if far else ""


def checkpointed(model: torch.nn.Module) -> str:
    """Turn on the checkpointing that the model's own library has; what it is called, if there is any."""
    for part in (model, getattr(model, "model", None)):
        if hasattr(part, "gradient_checkpointing_enable") and getattr(part, "supports_gradient_checkpointing", True):
            part.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            return "gradient_checkpointing_enable"
        if hasattr(part, "enable_gradient_checkpointing"):
            part.enable_gradient_checkpointing()
            return "enable_gradient_checkpointing"
        if hasattr(part, "set_grad_checkpointing"):
            part.set_grad_checkpointing(True)
            return "set_grad_checkpointing"
    return ""


def moved(built: Built, device: str) -> Built:
    def there(value: Any) -> Any:
        return torch.utils._pytree.tree_map(lambda x: x.to(device) if isinstance(x, torch.Tensor) else x, value)

    loss = built.loss
    if loss.__closure__:
        cells = [there(cell.cell_contents) for cell in loss.__closure__]
        for cell, value in zip(loss.__closure__, cells):
            cell.cell_contents = value
    return Built(built.model.to(device), there(built.args), there(built.keywords), loss)


def one(name: str, options: argparse.Namespace) -> None:
    """Measure one model; every result is a line of JSON, so that what came before a time-out counts."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    cuda = options.device == "cuda"
    if cuda:
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.deterministic = True
    else:
        torch.set_num_threads(1)
    torch.manual_seed(0)
    with torch.device(options.device):
        built = (LARGE if cuda else SMALL)[name].build()
    built = moved(built, options.device)
    model = built.model.train()
    theirs = copy.deepcopy(model)
    steps = Steps(built, cuda)
    steps.once(model, model)
    plain, expected = steps.peak(model, model), steps.bits(model, model)
    gradients = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    drift = same(steps.bits(model, model), expected)
    turns = _turns(steps, [(model, model)], options.turns)
    host = steps.host_share(model, model) if cuda else None
    _tell("plain", peak=plain, gradients=gradients, seconds=turns[0], bits=drift, host=host)
    own, known = None, ""
    try:
        known = checkpointed(theirs)
        if known:
            steps.once(theirs, theirs)
            own = steps.peak(theirs, theirs)
            other, mine = _turns(steps, [(theirs, theirs), (model, model)], options.turns)
            _tell("own", peak=own, ratio=other / mine, how=known, bits=same(steps.bits(theirs, theirs), expected))
    except Exception as error:
        _tell("own", error=_short(error))
        own = None
    of = plain if options.of == "peak" else plain - gradients
    asked: dict[str, int | None] = {"no limit": None}
    if own is not None:
        asked["its peak"] = own
    asked.update((f"{share:.0%}", plain - of + int(share * of)) for share in SHARES)
    for label, memory in asked.items():
        if options.budgets and label not in options.budgets:
            continue
        beside = [(model, model), *([(theirs, theirs)] if own is not None and label == "its peak" else [])]
        _fitted(label, memory, steps, beside, expected, options)
    if not options.budgets or "smallest" in options.budgets:
        try:
            steps.once(fit(model, memory=1, **_backend(options)), model)
            _tell("smallest", error="a budget of one byte was not refused")
        except BudgetError as error:
            least = None if error.minimum is None else math.ceil(error.minimum)
            _tell("refusal", minimum=least, text=_short(error))
            if least is not None:
                _fitted("smallest", least, steps, [(model, model)], expected, options)
        except Exception as error:
            _tell("smallest", error=_short(error), trace=traceback.format_exc()[-3000:])


def _fitted(
    label: str, memory: int | None, steps: Steps, beside: list[Any], expected: list[Any], options: argparse.Namespace
) -> None:
    model = beside[0][1]
    begun = time.perf_counter()
    try:
        fitted = fit(model, memory=memory, **_backend(options))
        peaks = [steps.peak(fitted, model)]
        first = time.perf_counter() - begun
        _settle(fitted)
        peaks += [steps.peak(fitted, model) for _ in range(_STEPS - 1)]
        bits = same(steps.bits(fitted, model), expected)
        times = _turns(steps, [(fitted, model), *beside], options.turns)
        plan = getattr(fitted, "plan", None)
        _tell(
            label, memory=memory, peaks=peaks, bits=bits, ratio=times[0] / times[1], first=first,
            beside=times[0] / times[2] if len(times) > 2 else None, planned=getattr(plan, "peak", None),
            overhead=getattr(plan, "overhead", None), engine=str(getattr(plan, "engine", "")),
        )  # fmt: skip
    except BudgetError as error:
        _tell(label, memory=memory, refused=error.minimum, text=_short(error))
    except Exception as error:
        _tell(label, memory=memory, error=_short(error), trace=traceback.format_exc()[-3000:])
    fitted = None
    model.zero_grad(set_to_none=True)
    gc.collect()
    if steps.cuda:
        torch.cuda.empty_cache()


def _settle(fitted: Any) -> None:
    """Plan now, while nobody is profiling: what kernels take inside can't be measured then."""
    _ = fitted.plans


def _backend(options: argparse.Namespace) -> dict[str, Any]:
    return {"time_limit": options.time_limit, **({} if options.backend is None else {"backend": options.backend})}


def _turns(steps: Steps, runs: list[Any], turns: int) -> list[float]:
    found: list[list[float]] = [[] for _ in runs]
    for run, owner in runs:
        steps.once(run, owner)
    for turn in range(turns):
        for i in range(len(runs)) if turn % 2 else reversed(range(len(runs))):
            found[i].append(steps.seconds(*runs[i]))
    return [min(each) for each in found]


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]


def _tell(what: str, **facts: Any) -> None:
    print("ROW " + json.dumps({"what": what, **facts}), flush=True)


# ---- all models --------------------------------------------------------------------------------------------------


def measured(name: str, options: argparse.Namespace, end: float) -> dict[str, Any]:
    """What a process of its own tells of one model."""
    words = [sys.executable, __file__, "--one", name, "--device", options.device, "--time-limit", options.time_limit]
    words += ["--turns", options.turns, "--of", options.of]
    words += ["--backend", options.backend] if options.backend else []
    words += ["--budgets", ",".join(options.budgets)] if options.budgets else []
    limit = min(options.limit, end - time.time())
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        output, errors = process.communicate(timeout=max(1.0, limit))
        ended = "" if process.returncode == 0 else f"exit {process.returncode}: {errors[-500:]}"
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        ended = f"stopped after {limit:.0f} s"
    rows = [json.loads(line[4:]) for line in output.splitlines() if line.startswith("ROW ")]
    return {"name": name, "ended": ended, **{row.pop("what"): row for row in rows}}


def megabytes(count: float) -> str:
    return f"{count / 1e6:,.1f}" if count < 1e9 else f"{count / 1e6:,.0f}"


def cell(row: dict[str, Any] | None, plain: dict[str, Any]) -> str:
    """One budget of one model in a few words."""
    if row is None:
        return ""
    if "error" in row:
        return f"**{row['error'].partition(':')[0]}**"
    if "refused" in row:
        least = row["refused"]
        return "refused" if least is None else f"refused, least {least / row['memory']:.2f} of it"
    limit = row["memory"] if row["memory"] is not None else plain["peak"]
    words = [f"×{row['ratio']:.2f}"]
    if row["memory"] is None:
        words.append(f"{max(row['peaks'][1:]) / plain['peak']:.2f} of plain")
    for what, peak in (("first", row["peaks"][0]), ("", max(row["peaks"][1:]))):
        if peak > limit:
            words.append(f"**over {peak / limit:.2f}{' ' + what if what else ''}**")
    if row["bits"] and row["bits"] != plain["bits"]:
        words.append(f"**{row['bits']}**")
    return " ".join(words)


def smallest(row: dict[str, Any]) -> str:
    least, own = row.get("smallest"), row.get("own", {}).get("peak")
    if least is None or "error" in least or "refused" in least:
        return cell(least, row["plain"]) if least else ("refused" if "refusal" in row else "")
    words = [megabytes(least["memory"]), f"{least['memory'] / row['plain']['peak']:.2f} of plain"]
    if own:
        words.append(f"{least['memory'] / own:.2f} of own")
    if max(least["peaks"]) > least["memory"]:
        words.append(f"**over {max(least['peaks']) / least['memory']:.2f}**")
    return ", ".join([*words, *([f"**{least['bits']}**"] if least["bits"] else [])])


def table(rows: list[dict[str, Any]], zoo: dict[str, Any]) -> list[str]:
    """A line of markdown for every model."""
    labels = ["no limit", "its peak", *(f"{share:.0%}" for share in SHARES)]
    lines = [
        f"| model | of | plain | own checkpointing | {' | '.join(labels)} | smallest, MB |",
        "|---" * (len(labels) + 5) + "|",
    ]
    for row in rows:
        plain, own = row.get("plain"), row.get("own", {})
        if plain is None:
            lines.append(f"| {row['name']} | {zoo[row['name']].library} | {row['ended'][:200]} |")
            continue
        told = f"{megabytes(plain['peak'])} MB {plain['seconds'] * 1e3:.0f} ms"
        told += f" (host {plain['host']:.0%})" if plain["host"] is not None else ""
        theirs = f"{megabytes(own['peak'])} MB ×{own['ratio']:.2f}" if "peak" in own else own.get("error", "–")[:60]
        cells = [cell(row.get(label), plain) for label in labels]
        beside = row.get("its peak", {}).get("beside")
        if beside is not None:
            cells[1] += f" ({beside:.2f} of own)"
        ended = f" {row['ended'][:80]}" if row["ended"] else ""
        lines.append(
            f"| {row['name']} | {zoo[row['name']].library} | {told} | {theirs} | {' | '.join(cells)} | "
            f"{smallest(row)}{ended} |"
        )
    return lines


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """How many run, differ or are over budget, and medians."""
    labels = ["no limit", "its peak", *(f"{share:.0%}" for share in SHARES), "smallest"]
    results = [(row, label, row[label]) for row in rows if "plain" in row for label in labels if label in row]
    ran = [(row, label, each) for row, label, each in results if "peaks" in each]
    failed = [f"{row['name']} ({label})" for row, label, each in results if "error" in each]
    failed += [f"{row['name']} ({row['ended'][:40]})" for row in rows if row["ended"]]
    refused = [f"{row['name']} ({label})" for row, label, each in results if "refused" in each]
    differ = [f"{r['name']} ({label})" for r, label, each in ran if each["bits"] and each["bits"] != r["plain"]["bits"]]
    limits = [(r, label, each, each["memory"] or r["plain"]["peak"]) for r, label, each in ran]
    over = [f"{r['name']} ({label})" for r, label, each, limit in limits if max(each["peaks"][1:]) > limit]
    first = [f"{r['name']} ({label})" for r, label, each, limit in limits if each["peaks"][0] > limit]
    whole = [row["name"] for row in rows if any(r is row for r, _, _ in ran) and not row["ended"]]
    lines = [f"- models: {len(rows)}, run: {len(whole)}; steps under a budget or none that were measured: {len(ran)}"]
    for what, names in (
        ("failed", failed), ("refused at a share", refused), ("differ from plain eager mode", differ),
        ("over budget, or over plain without a limit", over), ("over it in the first step alone, which plans", first),
    ):  # fmt: skip
        lines.append(f"- {what}: {len(names)}{': ' + ', '.join(names) if names else ''}")
    for label in labels:
        ratios = [each["ratio"] for _, each_label, each in ran if each_label == label]
        if ratios:
            lines.append(f"- time × plain, {label}: median {statistics.median(ratios):.3f}, most {max(ratios):.3f}")
    beside = [each["beside"] for _, _, each in ran if each.get("beside") is not None]
    if beside:
        slower = sum(each > 1 for each in beside)
        lines.append(
            f"- time × own checkpointing, at its peak: median {statistics.median(beside):.3f}, most {max(beside):.3f}, "
            f"slower than it {slower} of {len(beside)}"
        )
    least = [(r["name"], e["memory"] / r["own"]["peak"]) for r, label, e in ran
             if label == "smallest" and "peak" in r.get("own", {})]  # fmt: skip
    if least:
        above = [f"{name} ({ratio:.2f})" for name, ratio in least if ratio > 1]
        lines.append(
            f"- smallest budget ÷ peak of own checkpointing: median {statistics.median(r for _, r in least):.2f}; "
            f"above 1: {len(above)} of {len(least)}{': ' + ', '.join(above) if above else ''}"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--models", default="", help="names, with commas; all if left out")
    parser.add_argument("--budgets", default="", help="such as 'no limit,50%%,smallest'; all if left out")
    parser.add_argument("--backend", help="of fit; its default if left out")
    parser.add_argument("--of", choices=["activations", "peak"], default="activations")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for one model")
    parser.add_argument("--time-limit", type=float, default=5.0, help="seconds for one plan")
    parser.add_argument("--minutes", type=float, default=1e6, help="for all of it")
    parser.add_argument("--write", type=Path, help="markdown goes here")
    parser.add_argument("--rows", type=Path, help="all that was measured goes here, a line of JSON for each model")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.budgets = [each for each in options.budgets.split(",") if each]
    if options.one:
        one(options.one, options)
        return
    zoo = LARGE if options.device == "cuda" else SMALL
    names = options.models.split(",") if options.models else list(zoo)
    end = time.time() + 60 * options.minutes
    rows: list[dict[str, Any]] = []
    for name in names:
        rows.append(measured(name, options, end))
        print(table(rows[-1:], zoo)[-1], flush=True)
        for label, each in rows[-1].items():
            if isinstance(each, dict) and ("error" in each or each.get("bits")):
                print(f"    {label}: {each.get('error') or each['bits']}", flush=True)
        if options.rows:
            with options.rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
        if options.write:
            _write(options, rows, zoo)
    print("\n".join(summary(rows)))


def _write(options: argparse.Namespace, rows: list[dict[str, Any]], zoo: dict[str, Any]) -> None:
    device = torch.cuda.get_device_name() if options.device == "cuda" else f"{platform.machine()}, one thread"
    lines = [
        f"# Models that others wrote, {time.strftime('%Y-%m-%d')}", "",
        f"`python {' '.join(sys.argv)}`, torch {torch.__version__}, {device}", "",
        f"One process for each model. {' '.join((__doc__ or '').split('is one row. ')[1].split())} Here shares are of "
        f"its {options.of}; `first` stands for the first step, which plans.", "",
        *summary(rows), "", *table(rows, zoo), "",
    ]  # fmt: skip
    options.write.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()

"""The examples of own adjoint code give the published values, whatever schedule and store, and run as scripts."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pebbling as pb
from pebbling.store import Disk

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = ["heat", "box_model", "optimal_control", "multilevel", "speelpenning", "dump", "burgers"]
MPIEXEC = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or "mpiexec"


def example(name):
    """An example as a module; they import each other as scripts in one directory do."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(EXAMPLES))


def output_of(*command, timeout=120):
    """What a command prints; it must succeed, without warnings, within ``timeout`` seconds."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL, cwd=EXAMPLES
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python(*arguments):
    return [sys.executable, "-W", "error", *arguments]


def same_bits(one, two):
    return one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes()


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_run_and_pass_their_taylor_tests(name):
    lines = output_of(*python(f"{name}.py")).splitlines()
    assert lines[-1] == "passed"
    assert any(line.startswith("forwards a step") for line in lines)


@pytest.mark.parametrize("name", [*SCRIPTS, "advection_mpi"])
def test_scripts_say_what_they_show_and_how_to_run_them(name):
    header = (EXAMPLES / f"{name}.py").read_text().split('"""')[1]
    assert "\nShows: " in header
    assert re.search(rf"\nRun: .*python.* examples/{name}\.py\n", header)


@pytest.mark.parametrize("kept", ["memory", "disk"])
@pytest.mark.parametrize("family", range(3), ids=["Revolve", "Periodic", "Online"])
@pytest.mark.parametrize("slots", [4, 100])
def test_heat(slots, family, kept, tmp_path):
    heat = example("heat")
    schedule = heat.schedules(slots)[family]
    with Disk(tmp_path) as disk:
        result = heat.gradient(schedule, disk if kept == "disk" else None)
    assert abs(np.linalg.norm(result.state) - 66.21987468492061) < 1e-11
    assert abs(np.linalg.norm(result.adjoint[1:-1]) - 6.970279349365908) < 1e-11
    assert same_bits(result.adjoint, heat.gradient(pb.StoreAll(heat.STEPS)).adjoint)
    assert (result.report.written["disk"] > 0) if kept == "disk" else ("disk" not in result.report.written)


@pytest.mark.parametrize(("slots", "advances"), [(4, 3213), (100, 898)])
def test_heat_takes_the_published_number_of_advances(slots, advances):
    heat = example("heat")
    report = heat.gradient(pb.Revolve(heat.STEPS, slots)).report
    # one more gives the final state, which the plan itself does not need
    assert report.forwards == heat.STEPS + advances + 1


def test_box_model():
    box_model = example("box_model")
    result = box_model.gradient(slots=box_model.SLOTS)
    assert abs(box_model.final_temperature(result.state) - 21.41890316892692) < 1e-11
    assert abs(result.adjoint[1][1, 1] - 0.00616139595759519) < 1e-14
    assert result.report.forwards == box_model.STEPS + 19498 + 1
    everything = box_model.gradient(schedule=pb.StoreAll(box_model.STEPS))
    assert all(map(same_bits, result.adjoint, everything.adjoint))


def test_box_model_with_the_flow_turned_round():
    box_model = example("box_model")
    warm_pole = np.array([[0.0, 20.0, 5.0], [34.0, 34.5, 34.5]])
    assert (box_model.FLOW * warm_pole).sum() < 0
    weights = np.arange(1.0, 7.0).reshape(2, 3)

    def value_and_gradient(boxes):
        return (weights * box_model.tendency(boxes)).sum(), box_model.tendency_adjoint(boxes, weights)

    assert pb.taylor_test(value_and_gradient, warm_pole).passed


def test_optimal_control():
    optimal_control = example("optimal_control")
    result = optimal_control.costate(slots=4)
    np.testing.assert_allclose(result.state, [0.6087652608, 0.8641019561], rtol=0, atol=1e-10)
    np.testing.assert_allclose(result.adjoint, [1.7282512423, 1.0], rtol=0, atol=1e-10)
    exact_path, exact_costate = optimal_control.exact_path(1.0), optimal_control.exact_costate(0.0)
    np.testing.assert_allclose(exact_path, [0.608772485712049, 0.8641644977691127], rtol=1e-15)
    np.testing.assert_allclose(exact_costate, [1.7283289955382255, 1.0], rtol=1e-15)
    np.testing.assert_allclose(result.state, exact_path, rtol=1e-4)
    np.testing.assert_allclose(result.adjoint, exact_costate, rtol=1e-4)
    assert result.report.forwards == 100 + 374 + 1
    assert same_bits(result.adjoint, optimal_control.costate(schedule=pb.StoreAll(100)).adjoint)


@pytest.mark.parametrize("pair", range(3))
def test_multilevel(pair):
    multilevel = example("multilevel")
    outer, inner = multilevel.schedules()[pair]
    result = multilevel.gradient(np.array([2.0, 3.0, 4.0]), outer, inner)
    assert type(outer) is not type(inner)
    assert result.adjoint.tolist() == [1024.0] * 3
    assert result.state.sum() == pytest.approx(9216.0, rel=1e-14)


@pytest.mark.parametrize("slots", [1, 3, 10])
def test_speelpenning(slots):
    speelpenning = example("speelpenning")
    x = speelpenning.factors()
    result = speelpenning.product_and_gradient(x, slots=slots)
    assert abs(result.state - 1 / 11) < 1e-15
    assert np.abs(result.adjoint[1] - 1 / 11 / x).max() < 1e-15


def test_dump(tmp_path):
    dump = example("dump")
    x = np.array([2.0, 3.0, 4.0])
    result = dump.gradient(x, tmp_path)
    written = pb.Dump(tmp_path)
    assert written.steps() == [0, 2, 4, 6, 8]
    state, adjoint = written.read(0)
    assert same_bits(state, x)
    assert adjoint.tolist() == result.adjoint.tolist() == [1024.0] * 3
    state, adjoint = written.read(8)
    np.testing.assert_allclose(state, 256 * x, rtol=1e-14)
    assert adjoint.tolist() == [4.0] * 3


@pytest.mark.parametrize("memory", ["1MiB", "4MiB"])
def test_burgers_stays_within_its_budget(memory):
    # in a process of its own, where whatever is set up on first use counts as well
    program = (
        "import burgers, pebbling as pb\n"
        "start = burgers.initial()\n"
        f"result, peak = burgers.measured_peak(lambda: burgers.gradient(start, memory={memory!r}))\n"
        "everything = burgers.gradient(start, schedule=pb.StoreAll(burgers.STEPS))\n"
        "print(peak, result.report.stores, result.adjoint.tobytes() == everything.adjoint.tobytes())\n"
    )
    peak, stores, equal = output_of(*python("-c", program)).split()
    assert int(peak) <= pb.units.parse_bytes(memory)
    assert int(stores) > 0
    assert equal == "True"


def on_ranks(number, *arguments, timeout=120):
    return output_of(MPIEXEC, "-n", str(number), *python("-m", "mpi4py", *arguments), timeout=timeout)


def test_advection_script():
    lines = on_ranks(2, "advection_mpi.py").splitlines()
    assert lines[0].startswith("2 ranks")
    assert lines[1].endswith("bit for bit: True")
    assert lines[-1] == "passed"


def advection_reference(tracer, courant, steps):
    """The gradient on one process without stores, plans or halos."""
    states = []
    for _ in range(steps):
        states.append(tracer)
        tracer = tracer - courant * (tracer - np.roll(tracer, 1))
    of_tracer, of_courant = tracer, np.zeros_like(courant)
    for state in reversed(states):
        of_courant = of_courant - of_tracer * (state - np.roll(state, 1))
        flow = courant * of_tracer
        of_tracer = of_tracer - flow + np.roll(flow, -1)
    return of_tracer, of_courant


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_advection_equals_one_process(ranks, tmp_path):
    program = (
        "import sys, numpy as np, advection_mpi as advection\n"
        "comm, fields = advection.MPI.COMM_WORLD, advection.initial()\n"
        "_, parts, _ = advection.gradient(*fields, comm, sys.argv[1], slots=6)\n"
        "if comm.Get_rank() == 0:\n"
        "    np.save(sys.argv[1] + '/gradient.npy', np.stack([*fields, *parts]))\n"
    )
    (tmp_path / "program.py").write_text(f"import sys\nsys.path.insert(0, {str(EXAMPLES)!r})\n{program}")
    on_ranks(ranks, str(tmp_path / "program.py"), str(tmp_path))
    tracer, courant, *found = np.load(tmp_path / "gradient.npy")
    assert all(map(same_bits, found, advection_reference(tracer, courant, steps=100)))
    assert [path.name for path in tmp_path.glob("rank*")] == []


@pytest.mark.parametrize(
    "differing",
    [
        "budget = {'slots': 6 + (rank == 1)}",
        "budget = {'schedule': (pb.Periodic if rank == 1 else pb.Revolve)(advection.STEPS, 6)}",
        "advection.STEPS += rank == 1; budget = {'slots': 6}",
    ],
    ids=["slots", "schedules", "steps"],
)
def test_ranks_with_different_plans_all_get_an_error(differing, tmp_path):
    program = f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
import advection_mpi as advection
import pebbling as pb

comm = advection.MPI.COMM_WORLD
rank = comm.Get_rank()
{differing}
try:
    advection.gradient(*advection.initial(), comm, sys.argv[1], **budget)
except pb.PebblingError as error:
    print(f"rank {{rank}}: {{error}}\\n", end="", flush=True)
"""
    (tmp_path / "program.py").write_text(program)
    printed = on_ranks(3, str(tmp_path / "program.py"), str(tmp_path), timeout=60)
    for rank in range(3):
        assert f"rank {rank}: the plan differs between ranks [[0, 2], [1]]; rank {rank} has" in printed


def test_the_gallery_shows_every_example():
    shown = re.findall(r"\.\./examples/(\w+\.py)", (EXAMPLES.parent / "docs" / "gallery.md").read_text())
    assert sorted(shown) == sorted(path.name for path in EXAMPLES.glob("*.py"))

"""Advection on several processes: a domain cut into parts, halos exchanged inside the steps.

Each rank holds a stretch of a periodic domain. A step needs one value from the left neighbour; its
adjoint sends one back. Every rank has a store of its own on disk, and ``comm=`` has the ranks agree
on the plan before they start: were one to replay a step that its neighbours do not, the exchange
inside that step would wait for ever.

Shows: ``comm=``; collectives inside ``advance`` and ``reverse``; the gradient with respect to the
initial tracer and to the local Courant numbers, equal bit for bit to that of one process.

Run: mpiexec -n 3 python examples/advection_mpi.py
(pip install mpi4py mpich brings what is needed.)
"""

import tempfile
from pathlib import Path

import numpy as np
from mpi4py import MPI

import pebbling as pb
from pebbling.store import Disk

POINTS, STEPS, SLOTS = 101, 100, 6


def initial():
    """A smooth tracer, and the Courant number (velocity times time step over spacing) at each point."""
    x = np.arange(POINTS) / POINTS
    return np.exp(-40 * (x - 0.3) ** 2), 0.5 + 0.3 * np.sin(2 * np.pi * x)


def stretch(field, comm):
    """This rank's part of a field; parts may differ in length by one."""
    return np.array_split(field, comm.Get_size())[comm.Get_rank()].copy()


def whole(part, comm):
    """The field whose parts the ranks hold, on every rank."""
    return np.concatenate(comm.allgather(part))


def from_neighbour(value, comm, shift):
    """Send a value ``shift`` ranks on around the ring, and receive the one that comes from the other side."""
    rank, size = comm.Get_rank(), comm.Get_size()
    received = np.empty(1)
    comm.Sendrecv(np.array([value]), (rank + shift) % size, recvbuf=received, source=(rank - shift) % size)
    return received


class Advection:
    """Upwind steps on one rank's stretch of the domain."""

    def __init__(self, courant, comm):
        self.courant, self.comm = courant, comm

    def rise(self, tracer):
        """Each value minus the one to its left."""
        left = from_neighbour(tracer[-1], self.comm, shift=1)
        return tracer - np.concatenate([left, tracer[:-1]])

    def advance(self, tracer, step):
        return tracer - self.courant * self.rise(tracer)

    def reverse(self, tracer, adjoint, step):
        """The halo goes the other way: what a point owes to its left neighbour is sent there."""
        of_tracer, of_courant = adjoint
        flow = self.courant * of_tracer
        right = from_neighbour(flow[0], self.comm, shift=-1)
        before = of_tracer - flow + np.concatenate([flow[1:], right])
        return before, of_courant - of_tracer * self.rise(tracer)


def gradient(tracer, courant, comm, directory, **budget):
    """Half the sum of squares of the final tracer, and its gradient; whole fields in, whole fields out."""
    model = Advection(stretch(courant, comm), comm)
    with Disk(Path(directory) / f"rank{comm.Get_rank()}of{comm.Get_size()}") as store:
        result = pb.adjoint(
            model.advance,
            model.reverse,
            stretch(tracer, comm),
            STEPS,
            seed=lambda final: (final, np.zeros_like(final)),
            store=store,
            comm=comm,
            **budget,
        )
    final = whole(result.state, comm)
    return 0.5 * (final**2).sum(), tuple(whole(part, comm) for part in result.adjoint), result.report


def main():
    comm = MPI.COMM_WORLD
    with tempfile.TemporaryDirectory() as directory:
        # One directory for all ranks; on a cluster, each rank would take a disk of its node.
        directory = comm.bcast(directory)
        fields = initial()
        value, parts, report = gradient(*fields, comm, directory, slots=SLOTS)
        taylor = pb.taylor_test(lambda point: gradient(*point, comm, directory, slots=SLOTS)[:2], fields)
        if comm.Get_rank() == 0:
            _, serial, _ = gradient(*fields, MPI.COMM_SELF, directory, slots=SLOTS)
            equal = all(part.tobytes() == one.tobytes() for part, one in zip(parts, serial))
            print(f"{comm.Get_size()} ranks: half the sum of squares {value}")
            print(f"gradients equal to those of one process, bit for bit: {equal}")
            print(report)
            print("\nTaylor test:")
            print(taylor, flush=True)
        comm.Barrier()


if __name__ == "__main__":
    main()

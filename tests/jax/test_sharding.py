"""Sharded arrays and ``shard_map``, on four devices: a Burgers solver whose gradient equals the unsharded one."""

import os
import socket
import subprocess
import sys
from pathlib import Path


def test_four_devices():
    program = Path(__file__).with_name("sharded_program.py")
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, program], env={**os.environ, "XLA_FLAGS": flags}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 19
    assert all(line.endswith(": ok") for line in lines), done.stdout


def test_two_processes():
    """By ``jax.distributed``: each process holds half of the state, and gets its half of the gradient."""
    program = Path(__file__).with_name("distributed_program.py")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    runs = [
        subprocess.Popen(
            [sys.executable, program, str(rank), address], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for rank in range(2)
    ]
    for text in [run.communicate(timeout=300)[0] for run in runs]:
        assert "equal" in text.splitlines(), text

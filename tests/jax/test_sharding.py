"""Sharded arrays and ``shard_map``, on four devices: a Burgers solver whose gradient equals the unsharded one."""

import os
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

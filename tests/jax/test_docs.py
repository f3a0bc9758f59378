"""The examples of the page on JAX run as written."""

import re
from pathlib import Path


def test_every_example_runs(capsys):
    page = (Path(__file__).parents[2] / "docs" / "jax.md").read_text()
    names = {}
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for block in blocks:
        exec(block, names)
    assert len(blocks) >= 8
    assert "while_loop of an unknown number of steps replaced" in capsys.readouterr().out
    assert names["hessian"].shape == (3, 3)

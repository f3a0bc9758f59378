"""HiGHS in a process of its own.

HiGHS may take its process down: for some programmes releases up to 1.15 write past their memory while they
factor the basis of a sub-problem, and what dies then is a training run that only asked for a bound. It may
also go on past its time limit. So it works in a second process, which is started at the first programme,
waits for the next, and ends with the first one, however that ends. One that dies or hangs costs an answer,
and is replaced.
"""

from __future__ import annotations

import atexit
import importlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

# Seconds beyond its own limit that a solver may take to notice it.
_GRACE = 1.0
_SERVE = "from pebbling.graph.apart import serve; serve()"
_READY = "ready"


class Apart:
    """A second process that calls functions of this package, one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def call(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        """What the function returns, or None if the process died of it, took longer than that, or can't be started."""
        with self._lock:
            try:
                process = self._running()
            except (OSError, EOFError):
                self.stop()
                return None
            found: list[Any] = []
            exchange = threading.Thread(target=_exchange, args=(process, (function, arguments), found), daemon=True)
            exchange.start()
            exchange.join(seconds + _GRACE)
            if not found:
                process.kill()
                exchange.join()
                self.stop()
                return None
            if isinstance(found[0], BaseException):
                raise found[0]
            return found[0]

    def stop(self) -> None:
        """End the process, if it is there and ours."""
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    assert pipe is not None
                    pipe.close()

    def _running(self) -> subprocess.Popen[bytes]:
        # A process that was forked off must not talk into its parent's pipes.
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self.stop()
            self._owner = os.getpid()
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
            )
            assert self._process.stdout is not None
            # Starting takes a while, which is not the solver's.
            pickle.load(self._process.stdout)
        return self._process


def _exchange(process: subprocess.Popen[bytes], question: Any, found: list[Any]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        pickle.dump(question, process.stdin)
        process.stdin.flush()
        found.append(pickle.load(process.stdout))
    except (OSError, EOFError, ValueError, pickle.UnpicklingError):
        # It died: there is no answer.
        return


def serve() -> None:
    """Answer calls from standard input on standard output until the former ends."""
    questions = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    # Whatever is printed goes elsewhere.
    os.dup2(2, 1)
    with suppress(ImportError):
        importlib.import_module("highspy")
    pickle.dump(_READY, answers)
    answers.flush()
    while True:
        try:
            function, arguments = pickle.load(questions)
        except EOFError:
            return
        try:
            answer = function(*arguments)
        except Exception as error:
            answer = error
        pickle.dump(answer, answers)
        answers.flush()


aside = Apart()
"""The one second process."""
atexit.register(aside.stop)

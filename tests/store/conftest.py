"""A stand-in for the operating system that fails, dies or loses power at a chosen call."""

from __future__ import annotations

import errno
import os
import random
from functools import partial

import pytest

from pebbling.store import files, journal

CHANGES = {"open", "pwritev", "fsync", "fdatasync", "replace", "unlink", "mkdir", "rmdir", "ftruncate", "truncate"}
CHANGES |= {"posix_fallocate", "link"}


class Crash(BaseException):
    """The process is gone; nothing may catch this and go on."""


class System:
    """``os``, but for one call that goes wrong.

    ``at`` numbers the call, the first being 1. ``how`` is an error number, ``"crash"`` for the death
    of the process in the middle of the call, or ``"power"`` for that and the loss of a random part of
    whatever was not yet synchronised.
    """

    def __init__(self, at=0, how=errno.EIO, seed=0):
        self.at, self.how = at, how
        self.calls = []
        self.dead = False
        self.descriptors = {}
        self.unsynced = {}
        self.unnamed = []
        self.kept_open = []
        self.random = random.Random(seed)

    @property
    def struck(self):
        return 0 < self.at <= len(self.calls)

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in CHANGES:
            return real
        return lambda *arguments, **named: self._change(name, partial(real, **named), arguments)

    def close(self, descriptor):
        self.descriptors.pop(descriptor, None)
        os.close(descriptor)

    def bury(self):
        """What the system does when a process is dead: closes its files, which also ends its locks."""
        for descriptor in list(self.descriptors):
            self.close(descriptor)
        if self.how == "power":
            self._lose_power()

    def _change(self, name, real, arguments):
        if self.dead:
            raise Crash
        if name == "open" and not arguments[1] & (os.O_WRONLY | os.O_RDWR):
            return self._do(name, real, arguments)
        self.calls.append(name)
        strike = len(self.calls) == self.at
        if strike and isinstance(self.how, int):
            if name == "pwritev":
                self._write(*_half(*arguments))
            raise OSError(self.how, os.strerror(self.how))
        if strike:
            self.dead = True
            if name == "pwritev":
                self._write(*_half(*arguments))
            elif self.random.random() < 0.5:
                self._do(name, real, arguments)
            raise Crash
        return self._do(name, real, arguments)

    def _do(self, name, real, arguments):
        if name == "pwritev":
            return self._write(*arguments)
        if self.how == "power" and name == "replace":
            return self._replace(*arguments)
        if self.how == "power" and name == "link":
            self.unnamed.append(lambda path=arguments[1]: os.path.exists(path) and os.unlink(path))
        if self.how == "power" and name == "open" and arguments[1] & os.O_CREAT and not os.path.exists(arguments[0]):
            self.unnamed.append(lambda path=arguments[0]: os.path.exists(path) and os.unlink(path))
        if name in ("fsync", "fdatasync"):
            return self._sync(*arguments)
        result = real(*arguments)
        if name == "open":
            is_nameless = arguments[1] & os.O_TMPFILE == os.O_TMPFILE
            self.descriptors[result] = "" if is_nameless else arguments[0]
        return result

    def _sync(self, descriptor):
        """Only noted: the machine that loses power here is this one."""
        self.unsynced.pop(os.fstat(descriptor).st_ino, None)
        if os.path.isdir(self.descriptors[descriptor]):
            self.unnamed.clear()

    def _write(self, descriptor, buffers, offset):
        if self.how == "power":
            again = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
            length = sum(memoryview(buffer).nbytes for buffer in buffers)
            old = os.pread(again, length, offset)
            self.unsynced.setdefault(os.fstat(descriptor).st_ino, []).append((again, old, offset, length))
            self.kept_open.append(again)
        return os.pwritev(descriptor, buffers, offset)

    def _replace(self, source, target):
        backup = None
        if os.path.exists(target):
            backup = f"{os.path.dirname(target)}-backup-{len(self.calls)}"
            os.link(target, backup)

        def undo():
            os.rename(target, source)
            if backup is not None:
                os.rename(backup, target)

        os.replace(source, target)
        self.unnamed.append(undo)

    def _lose_power(self):
        for writes in self.unsynced.values():
            for descriptor, old, offset, length in reversed(writes):
                if self.random.random() < 0.5:
                    os.pwrite(descriptor, old.ljust(length, b"\0"), offset)
                if len(old) < length and self.random.random() < 0.2:
                    os.ftruncate(descriptor, offset + len(old))
        for undo in reversed(self.unnamed[self.random.randint(0, len(self.unnamed)) :]):
            undo()


def _half(descriptor, buffers, offset):
    """The first half of what was to be written."""
    total = sum(memoryview(buffer).nbytes for buffer in buffers) // 2
    whole = b"".join(bytes(buffer) for buffer in buffers)
    return descriptor, [whole[:total]], offset


@pytest.fixture
def system(monkeypatch):
    """Puts a stand-in in the place of the operating system; called again, the next one."""

    def install(**arguments):
        made = System(**arguments)
        monkeypatch.setattr(files, "system", made)
        installed.append(made)
        return made

    installed = []
    yield install
    for descriptor in [descriptor for made in installed for descriptor in made.kept_open]:
        os.close(descriptor)


@pytest.fixture
def short_journal(monkeypatch):
    """A journal that is written anew after a few lines."""
    monkeypatch.setattr(journal, "_ENOUGH", 3)


@pytest.fixture
def crash():
    return Crash

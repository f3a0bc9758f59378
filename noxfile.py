"""What the workflows run, on one's own machine: `nox`, `nox -s tests-3.12`, `nox -s docs`."""

import nox

nox.options.sessions = ["lint", "tests"]


@nox.session
def lint(session: nox.Session) -> None:
    """Style and types."""
    session.install("-e", ".", "-r", "requirements-test.txt", "-c", "constraints-test.txt")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy")


@nox.session(python=["3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    """All tests; arguments after `--` go to pytest."""
    session.install("-e", ".", "-r", "requirements-test.txt")
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """Which lines the tests run; arguments after `--` say which tests."""
    session.install("-e", ".", "-r", "requirements-test.txt", "-c", "constraints-test.txt", "coverage")
    session.run("coverage", "run", "--source=pebbling", "-m", "pytest", *session.posargs)
    session.run("coverage", "report", "--skip-covered", "--sort=cover")


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation, without a warning."""
    session.install("-e", ".", "-r", "requirements-test.txt", "-c", "constraints-test.txt")
    session.run("sphinx-build", "-W", "-b", "html", "docs", "docs/_build")

"""Every example in the README and the docs runs, and prints what the page says that it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import doc_examples

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


WITH_CODE = [page for page in PAGES if any(doc_examples.examples(page.read_text()))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_the_examples_of_a_page_run_one_after_the_other(page: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "__main__"}
    for example in doc_examples.examples(page.read_text()):
        printed = doc_examples.run(page, example, scope)
        assert example.agrees(printed), (
            f"{page.name}:{example.line} prints\n{printed}\nand the page shows\n{example.output}"
        )


def test_an_output_that_differs_is_found() -> None:
    shown = "```python\nprint(6 * 7)\n```\n```output\n{}\n```\n"
    right, elided, wrong = (next(iter(doc_examples.examples(shown.format(text)))) for text in ("42", "4...", "43"))
    printed = doc_examples.run(Path("page.md"), right, {})
    assert right.agrees(printed)
    assert elided.agrees(printed)
    assert not wrong.agrees(printed)


def test_no_output_block_is_left_without_its_code() -> None:
    for page in PAGES:
        text = page.read_text()
        assert text.count("```output") == sum(each.output is not None for each in doc_examples.examples(text)), page


def test_there_are_examples() -> None:
    assert sum(len(list(doc_examples.examples(page.read_text()))) for page in PAGES) >= 60


# What the README links to, so that its links work on a package index too, and where that lies in a checkout.
ABSOLUTE = {
    r"https://pebbling\.readthedocs\.io/en/latest/([\w\-/]+)\.html.*": r"docs/\1.md",
    r"https://github\.com/pebbling/pebbling/(?:blob|tree)/main/(.*)": r"\1",
    r"https://raw\.githubusercontent\.com/pebbling/pebbling/main/(.*)": r"\1",
}


def test_links_of_the_readme_are_absolute_and_lead_to_what_is_here() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", (ROOT / "README.md").read_text()) if link[0] != "#"]
    assert len(links) > 20
    for link in links:
        (path,) = (re.sub(known, place, link) for known, place in ABSOLUTE.items() if re.fullmatch(known, link))
        assert (ROOT / path).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_to_files_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target

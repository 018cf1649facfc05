"""Every block of Python on the documentation's pages runs as it stands, and so do the README's commands."""

from __future__ import annotations

import logging
import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kit.pages import LIBRARIES, LOOP, ROOT, Block, blocks_of, run_blocks
from typer.testing import CliRunner

from lcstore.cli.app import app
from lcstore.format.policyfile import policy_from

PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))]
#: Pages whose blocks need a store of their own, or processes, and the tests that run them.
ELSEWHERE = {
    "docs/copying.md": "tests/cli/test_copying_docs.py",
    "docs/exchange.md": "tests/cli/test_exchange_docs.py",
    "docs/lightning.md": "tests/integrations/test_lightning.py",
    "docs/maintenance.md": "tests/cli/test_maintenance.py",
    "docs/quickstart.md": "tests/docs/test_quickstart.py",
    "docs/targets.md": "tests/storage/test_targets_page.py",
}
HERE = [page for page in PAGES if page not in ELSEWHERE and blocks_of(page, "python")]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    level = logging.getLogger("lcstore").level
    yield
    logging.getLogger("lcstore").setLevel(level)  # pages may set it


@contextmanager
def one_thread(blocks: list[Block]) -> Iterator[None]:
    """Have PyTorch compute on one thread, if blocks use it: small models only wait for more of them."""
    if not any("torch" in block.words and not block.missing for block in blocks):
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _tuning() -> dict[str, Any]:
    """What docs/tune.md takes for given: a model, a batch, and states of a run."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    probe_batch = torch.randn(256, 32)

    def loss_on(model: Any, batch: Any) -> Any:
        return (model(batch) - batch.sin().sum(dim=1, keepdim=True)).square().mean()

    def evaluate(model: Any, batch: Any) -> float:
        with torch.no_grad():
            return float(loss_on(model, batch))

    def train(steps: int) -> dict[str, Any]:
        for _ in range(steps):
            loss = loss_on(model, torch.randn(64, 32))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return {"model": {name: value.clone() for name, value in model.state_dict().items()}}

    states = [train(5) for _ in range(8)]
    return {
        "model": model,
        "evaluate": evaluate,
        "probe_batch": probe_batch,
        "states": states,
        "train": train,
    }


SETUPS = {"docs/tune.md": _tuning}


# Of what keras does with tensors of torch.
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept:DeprecationWarning")
@pytest.mark.parametrize("page", HERE)
def test_the_blocks_of_a_page_run(page):
    blocks = blocks_of(page, "python")
    with one_thread(blocks):
        space = SETUPS[page]() if page in SETUPS else {}
        run_blocks(blocks, space)
    for block in blocks_of(page, "sh") if page == "README.md" and "store" in space else []:
        for line in block.code.splitlines():
            if line.startswith("lcstore "):
                result = CliRunner().invoke(app, shlex.split(line)[1:])
                assert result.exit_code == 0, (line, result.output)


@pytest.mark.parametrize("page", ELSEWHERE)
def test_what_is_run_elsewhere_is(page):
    assert Path(page).name in (ROOT / ELSEWHERE[page]).read_text(encoding="utf-8")


def test_words_after_python_are_known():
    words = {word for page in PAGES for block in blocks_of(page, "python") for word in block.words}
    assert words <= {*LIBRARIES, LOOP}


def test_commands_that_install_name_what_there_is():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    commands = "".join(block.code for block in blocks_of("README.md", "sh"))
    named = re.findall(r"pip install (?:-e )?'\.\[(\w+)\]'", commands)
    assert {"demo", "test"} <= set(named) <= set(extras)


@pytest.mark.parametrize("folder", ["decisions", "format"])
def test_a_list_of_pages_has_them_all(folder):
    pages = {path.name for path in (ROOT / "docs" / folder).glob("*.md")} - {"README.md"}
    text = (ROOT / "docs" / folder / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^- \[.*?\]\((.*?)\)", text, re.MULTILINE)) == pages


def test_the_policy_file_is_one(tmp_path):
    (block,) = blocks_of("docs/tune.md", "json")
    (tmp_path / "policy.json").write_text(block.code)
    policy = policy_from("policy.json")
    assert policy.name == "tuned-balanced"
    assert policy.error_of(("model", "blocks.3.down.weight")) == 2.0

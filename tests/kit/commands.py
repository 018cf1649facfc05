"""Commands as a user types them, run in this process."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from lcstore.cli.app import app


def call(*arguments: str) -> Result:
    """Run a command."""
    return CliRunner().invoke(app, list(arguments))


def document(*arguments: str, status: int = 0) -> dict[str, Any]:
    """Run a command, and return the document that it prints with ``--json``."""
    result = call(*arguments, "--json")
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)

"""Every configuration in the guide of connectors is one that a worker takes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ottla.connect.plugins import installed
from ottla.connect.validation import Validator

GUIDE = Path(__file__).parents[3] / "docs/guides/connectors.md"
BLOCKS = re.findall(r"^```json\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: str(json.loads(block)["connector.class"]))
def test_a_configuration_of_the_guide_is_taken(block: str) -> None:
    converters = {"key": "StringConverter", "value": "JsonConverter", "header": "SimpleHeaderConverter"}
    validator = Validator(installed(), converters, is_exactly_once=True)
    validator.validate({"name": "guide", **json.loads(block)}).refuse()

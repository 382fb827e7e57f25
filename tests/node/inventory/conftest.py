"""An inventory, and a plugin that has registered in it."""

import pytest

from kubedevices.node.inventory.inventory import Inventory
from tests.inventory_rig import Plugin


@pytest.fixture
def inventory() -> Inventory:
    return Inventory()


@pytest.fixture
def plugin(inventory: Inventory) -> Plugin:
    return Plugin(inventory)

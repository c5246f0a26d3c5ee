"""Losses, trainer, label protocol and data sets for single-positive multi-label learning.

Nothing happens on import: import the module you need, for example ``from spml_core import losses``.
"""

__version__ = "0.1.0"

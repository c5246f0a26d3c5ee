"""Notebooks without a screen: what a notebook declares, how papermill runs it, and the gallery of its figures."""

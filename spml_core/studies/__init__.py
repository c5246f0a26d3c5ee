"""Functions on runs that the notebooks share: trained sweeps, comparisons, curves over epochs, missing labels."""

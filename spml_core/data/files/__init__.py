"""Image files: finding, decoding and caching them, frozen features of them, and batches for training."""

"""The probabilistic models, one file each: arrays in, `pymc.Model` out."""

"""A second model of HyperPod, whoever else acts on it, and whole lifetimes of clusters against the scale-down function."""

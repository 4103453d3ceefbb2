"""A second model of HyperPod, other parties that act on it, and whole lifetimes of clusters with the scale-down
function."""

"""Exit codes of `plan`."""

NOTHING, REFUSED, CHANGES = 0, 1, 2
"""Nothing would be deleted; the deployment would be refused; nodes or groups would be deleted. Failing to read the cluster is 1, too."""

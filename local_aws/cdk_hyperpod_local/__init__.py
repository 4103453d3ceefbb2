"""AWS on this machine: what a deployment needs of it, simulated for tests, rehearsals and examples."""

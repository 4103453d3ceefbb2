"""Commands about the cluster file: write it, check it, print its schema; and what its changes mean."""

"""Commands that write training jobs."""

"""Making nodes ready before they go: what is asked of an agent or the drainer, what it says, and what that means."""

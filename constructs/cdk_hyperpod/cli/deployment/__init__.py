"""Commands about a deployment: before it (preflight, cost, plan), after it (why, retained), and a rehearsal."""

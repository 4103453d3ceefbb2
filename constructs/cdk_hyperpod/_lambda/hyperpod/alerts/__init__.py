"""The function behind a cluster's alerts: it turns HyperPod's events into messages with the reason, and writes the metrics of the alarms.

`handler` acts, and every other module is pure. `records` reads what is in the queue, with the tables in `descriptions` and `kinds`;
`decide` makes incidents of a batch; `message` writes them; `metrics` counts.
May import: common, kernel.
"""

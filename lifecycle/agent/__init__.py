"""Drain the nodes that a request names, after their jobs have ended and their data is saved.

The agent runs on the controller, started by systemd (step drain). Requests and the agent's status are objects in S3, under the
cluster's name (docs/adr/0014): CLUSTER/requests/operator.json and .../deployment.json, with one writer each, and CLUSTER/status.json,
which the agent writes.

For each node that a request names, the agent first makes a reservation of root's (MAINT), so that no new job starts there. It
waits until the node's jobs have ended. It submits a backup job into the reservation (backup/), which drains the node before it
reads anything. Then the agent reports `ready`. When no request names the node any more, the agent releases it.

The agent stores nothing. The reservation, the reason of the drain and the backup's job in Slurm are all that it knows, so it may
be killed at any time. It never changes a drain, a reason or a reservation of others. It checks all of a request, which is data.

    loop.py         read requests and Slurm, decide, act, write the status; main
    slurm.py        what Slurm's commands show; hyperpod.py: what HyperPod's files contain
    slurm_state.py  both, as one look reads them
    decide.py       what happens to a requested node: rules in order; decision.py: what a rule decides
    identity.py     which node of Slurm's it is: rules in order
    view.py         the facts about one node that the rules go by
    submit.py       the backup's job
    release.py      which nodes are released
    commands.py     each command that changes something in Slurm
    script.py       the script of a backup's job, made of backup/
    status.py       the status's jobs, and its length; backup_results.py: what backups have left out
    s3.py           the bucket, with the node's own role

drain_protocol.py (the format of requests and the status) is beside this folder on a node. It is a copy of the library's.

Only the standard library, and nothing newer than Python 3.8.
"""

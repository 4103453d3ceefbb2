"""Drain nodes that somebody wants to take, after their jobs have ended and their data is saved.

It runs on the controller, started by systemd (step drain). Requests and its answer are objects in S3, under the cluster's
name (docs/adr/0014): CLUSTER/requests/operator.json and .../deployment.json, one writer each, and CLUSTER/status.json, ours.

For each node that a request names it makes a reservation of root's (MAINT) at once, so that no new job starts there; waits
until the jobs on it have ended; copies what is to be saved by a job in the reservation (backup/), which drains the node
before it reads anything; and says `ready`. When nobody wants the node any more, it gives it back. It keeps nothing: the
reservation, the drain's reason, and the backup's job in Slurm are all that it knows, so it may be killed anywhere. It never
changes a drain, a reason or a reservation that is not its own. All that a request says is data, and is checked.

    loop.py         read requests and Slurm, decide, act, write the status; main
    slurm.py        what Slurm's commands show; hyperpod.py: what HyperPod's files tell
    slurm_state.py  all of both at one look, which the decisions go by
    decide.py       what happens to a requested node: rules in order; decision.py: what a rule decides
    identity.py     which node of Slurm's it is: rules in order
    view.py         the facts about one node that the rules go by
    submit.py       the backup's job
    release.py      what is given back
    commands.py     each command that changes something in Slurm
    script.py       the script of a backup's job, made of backup/
    status.py       what the status says of jobs, and its length; backup_results.py: what backups have left out
    s3.py           the bucket, with the node's own role

drain_protocol.py, what requests and the status hold, is beside this folder on a node: it is a copy of the library's.

Only the standard library, and nothing newer than Python 3.8.
"""

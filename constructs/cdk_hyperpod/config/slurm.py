"""The part of the typed model that applies under Slurm only: the cluster's users, their accounts and limits, and draining."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from .._lambda.hyperpod.kernel.drain_protocol import MAX_NODES
from ..typed.bounds import PATH_SEGMENT, Pattern, Range
from .effects import IN_PLACE, in_place, new_nodes
from .patterns import ROLE_ARN

# useradd(8) of the node's Debian and its kin: 32 characters, no capitals; a name of digits is a number to many tools.
LinuxName = Annotated[
    str,
    Pattern(
        r"[a-z_][a-z0-9_-]{0,31}",
        "1 to 32 lower-case letters, digits, hyphens and underscores that begin with a letter or an underscore",
        length=32,
    ),
]
# Below 1000 numbers are the system's (login.defs); 1000 is the image's own user; 60000 is the last that useradd gives.
LinuxId = Annotated[int, Range(1001, 60000)]
AccountName = Annotated[
    str,
    Pattern(r"[a-z0-9][a-z0-9_-]{0,62}", "1 to 63 lower-case letters, digits, hyphens and underscores", length=63),
]
# sacctmgr keeps the names of QOS in lower case.
QosName = Annotated[
    str,
    Pattern(r"[a-z0-9][a-z0-9_-]{0,62}", "1 to 63 lower-case letters, digits, hyphens and underscores", length=63),
]
# As HyperPod's SlurmConfig has it (PartitionNames).
SlurmPartitionName = Annotated[
    str,
    Pattern(
        r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", "1 to 63 letters, digits and hyphens, no hyphen at either end", length=63
    ),
]
# Also of a directory that the nodes ask, so with capitals and dots; no separator of sacctmgr's.
SlurmUser = Annotated[
    str,
    Pattern(
        r"[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,63}",
        "a user's name: 1 to 64 letters, digits, dots, hyphens and underscores",
        length=64,
    ),
]

USERS = new_nodes("lifecycle run users applies it to the others")
_ACCOUNTS = new_nodes("lifecycle run accounting applies it to the controller")
_SLURM_CONF = new_nodes("lifecycle run slurm_conf applies it to the controller")
_HOOKS = new_nodes("lifecycle run slurm_conf applies it to the others")
_DRAIN = new_nodes("lifecycle run drain applies it to the controller")
_STATE = new_nodes("lifecycle run keep_state applies it to the controller")
_DATABASE = in_place("Slurm's history stays in the old database")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A Linux group on every node. A change reaches new nodes. `cdk-hyperpod lifecycle run users` applies it to the others."""

    _change = USERS
    name: LinuxName
    """The group's name."""
    gid: LinuxId
    """Its number, the same on every node, 1001 to 60000. Files keep the number, so never give it to another group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A Linux user on every node. A change reaches new nodes. `cdk-hyperpod lifecycle run users` applies it to the
    others.

    Removing a user locks the account and keeps the home. A key for logging in from node to node is created in the home,
    on the node. It is never in the template or in S3.
    """

    _change = USERS
    name: LinuxName
    """The user's name."""
    uid: LinuxId
    """The number, the same on every node, 1001 to 60000. Files keep the number, so never give it to another user."""
    group: str
    """The user's own group, one of `groups`."""
    groups: tuple[str, ...] = ()
    """Other groups of `groups` that the user is in."""
    home: Annotated[str, Pattern(rf"(/{PATH_SEGMENT})+", "an absolute path without a slash at its end")] | None = None
    """The home. Absent: a folder with the user's name, in the OpenZFS mount if there is one, else in `home` on the
    Lustre file system, else in /home, which is local to each node. It must be outside other users' homes and the
    system's folders. A change moves no file."""
    ssh_public_keys: tuple[
        Annotated[
            str,
            Pattern(
                r"(ssh-(ed25519|rsa)|ecdsa-sha2-nistp(256|384|521)|sk-[a-z0-9-]+@openssh\.com) [A-Za-z0-9+/=]+( [^\n\r]*)?",
                "a public key in one line, as in a file that ends with .pub",
                length=8192,
            ),
        ],
        ...,
    ] = ()
    """Public keys with which the user can log in. Absent: only those that the user puts into the home."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmAccount:
    """A Slurm account: users who share limits. A change reaches the controller when its step runs. No node is
    terminated.

    As soon as there is one account, Slurm runs jobs only of root and of users with an account. If you remove an
    account, the step removes its users from it in Slurm. The account itself stays there, empty, with its usage and
    limits.
    """

    _change = _ACCOUNTS
    name: AccountName
    """The account's name in Slurm."""
    users: tuple[SlurmUser, ...] = ()
    """Its members: names of `users`, or of other users that the nodes know. The first account that names a new user
    becomes the user's default. A later change of order does not change it. Absent: no users. An account without users
    stays, and keeps its usage."""
    fairshare: Annotated[int, Range(1, 1_000_000)] | None = None
    """Its share of the cluster relative to the shares of other accounts. Absent: 1."""
    grp_nodes: Annotated[int, Range(0, MAX_NODES)] | None = None
    """How many nodes its jobs may have together (GrpTRES node). Absent: no limit."""
    grp_gpus: Annotated[int, Range(0, 100_000)] | None = None
    """How many GPUs its jobs may have together (GrpTRES gres/gpu). Absent: no limit."""
    grp_jobs: Annotated[int, Range(0, 1_000_000)] | None = None
    """How many of its jobs may run at once. Absent: no limit."""
    grp_submit_jobs: Annotated[int, Range(0, 1_000_000)] | None = None
    """How many of its jobs may run or wait. Absent: no limit."""
    max_jobs: Annotated[int, Range(0, 1_000_000)] | None = None
    """How many jobs of each of its users may run at once. Absent: no limit."""
    max_submit_jobs: Annotated[int, Range(0, 1_000_000)] | None = None
    """How many jobs of each of its users may run or wait. Absent: no limit."""
    max_wall_minutes: Annotated[int, Range(1, 525_600)] | None = None
    """Maximum run time of one of its jobs, in minutes. Absent: no limit."""
    qos: tuple[QosName, ...] = ()
    """The QOS that its jobs may use: names of `slurm.qos`, or normal, which Slurm has. The first one is the QOS of jobs
    that name none. Absent: normal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmQos:
    """A QOS: a priority and limits that jobs get with `--qos=NAME`. Accounts may use it if they name it in `qos`.

    A change reaches the controller when the step accounting runs, and applies to jobs that wait or are submitted later.
    A QOS that leaves the file is deleted as soon as no job and no account uses it. QOS belong to the accounting
    database: two clusters with one database need different names.
    """

    _change = _ACCOUNTS
    name: QosName
    """The name in Slurm. It cannot be normal, which is Slurm's own."""
    priority: Annotated[int, Range(0, 1_000_000)] | None = None
    """Jobs of the QOS with the highest number start first. If it is set, Slurm orders jobs by priority/multifactor, and
    PriorityWeightQOS is 1000 unless slurm.conf has another weight. Absent: 0."""
    max_jobs: Annotated[int, Range(0, 1_000_000)] | None = None
    """How many jobs of each user may run in it at once (MaxJobsPerUser). Absent: no limit."""
    grp_nodes: Annotated[int, Range(0, MAX_NODES)] | None = None
    """How many nodes its jobs may have together (GrpTRES node). Absent: no limit."""
    max_wall_minutes: Annotated[int, Range(1, 525_600)] | None = None
    """Maximum run time of one of its jobs, in minutes (MaxWall). Slurm does not start a job that asks for more. Absent:
    no limit."""
    preempts: tuple[QosName, ...] = ()
    """The QOS whose jobs a waiting job of this one may end to start itself (Preempt): names of `slurm.qos`, or normal. If
    any QOS has this, the library sets PreemptType to preempt/qos and PreemptMode to REQUEUE in slurm.conf, and
    restarts slurmctld once. Jobs go on."""
    preempt_mode: Literal["cancel", "requeue"] | None = None
    """How jobs of this QOS end if another QOS preempts them (PreemptMode). requeue: they wait again, or are cancelled if
    they cannot be requeued. Absent: requeue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmPartition:
    """Settings of a partition, on top of HyperPod's. HyperPod owns the partition's line in slurm.conf, so a unit on the
    controller sets them by `scontrol update`, and again after each start and reconfigure of slurmctld.

    A change reaches the controller when the step slurm_conf runs, and applies to jobs that are submitted later. What the
    file does not set is left as it is.
    """

    _change = _SLURM_CONF
    default: bool = False
    """True: jobs that name no partition run here. In one partition at most. Absent: HyperPod's dev."""
    max_time_minutes: Annotated[int, Range(1, 525_600)] | None = None
    """Maximum run time of a job, in minutes (MaxTime). Backups of the drain agent are jobs, too. Absent: as HyperPod has
    it."""
    priority_tier: Annotated[int, Range(0, 65_533)] | None = None
    """Jobs of the partition with the higher number are considered first for nodes that both have (PriorityTier). Absent:
    as HyperPod has it, 1."""
    allow_accounts: tuple[AccountName, ...] = ()
    """The accounts whose jobs may run here (AllowAccounts): names of `slurm.accounts`. The library adds the account
    cdk-hyperpod, in which root's jobs then run, such as those that save nodes. Absent: all."""
    state: Literal["up", "down", "drain", "inactive"] | None = None
    """up: jobs are accepted and start. down: they are accepted and wait. drain: none is accepted, and waiting ones still
    start. inactive: neither. Jobs that run go on. Absent: as HyperPod has it, up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmFiles:
    """Lines of yours for Slurm's configuration, in files beside this one. HyperPod's files include them.

    The controller puts them in place only if slurmctld starts with them, on a copy that is cut off from the network, and if
    slurmd of one idle compute node reads them. Otherwise the lines that were there before stay, and the step's log says
    why. Settings that HyperPod or the library set are refused. A change reaches the controller when the step slurm_conf
    runs, and the nodes from there.
    """

    _change = _SLURM_CONF
    slurm: str | None = None
    """A file with lines of slurm.conf, such as slurm/extra.conf. Absent: none."""
    gres: str | None = None
    """A file with lines of gres.conf. Absent: none."""
    cgroup: str | None = None
    """A file with lines of cgroup.conf. Absent: none."""
    job_container: str | None = None
    """A file with lines of job_container.conf, such as AutoBasePath=true and BasePath=/opt/local/jobs. Jobs then have a
    /tmp of their own: the library sets JobContainerType=job_container/tmpfs, and one job on an idle node tries it.
    Absent: none."""
    job_submit: str | None = None
    """A file that becomes job_submit.lua, which sees each job before Slurm accepts it. The library sets
    JobSubmitPlugins=lua. Absent: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountingDatabase:
    """A database of yours for Slurm's accounts and history (Orchestrator.Slurm.AccountingDatabase).

    HyperPod connects slurmdbd to it and reads the secret. No script does. Requires continuous provisioning.
    """

    _change = _DATABASE
    endpoint: Annotated[
        str,
        Pattern(
            r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*",
            "a host name such as accounting.cluster-abc.us-west-2.rds.amazonaws.com",
            length=255,
        ),
    ]
    """The database's host name: MySQL on RDS, or Aurora. The nodes must reach it."""
    secret_arn: Annotated[
        str,
        Pattern(
            r"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:.+",
            "a secret's ARN such as arn:aws:secretsmanager:us-west-2:111122223333:secret:accounting-AbCdEf",
            length=2048,
        ),
    ]
    """The secret in Secrets Manager with the database user's name and password. Only the controller's role may read it."""
    port: Annotated[int, Range(1, 65535)] | None = None
    """The port that it listens on. Absent: 3306."""
    name: Annotated[str, Pattern(r"[a-zA-Z0-9$_]{1,64}", "1 to 64 letters, digits, $ and _")] | None = None
    """The database's name. Absent: one with the cluster's id in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainBackup:
    """How a node's data is saved after its jobs have ended and before it is drained: its folders `paths` are copied
    `to` another one, and every file is compared by its sha256. Or a `hook` of your own saves it."""

    _change = _DRAIN
    paths: tuple[
        Annotated[str, Pattern(rf"(/{PATH_SEGMENT})+", "an absolute path without a slash at its end")], ...
    ] = ()
    """Folders on the node's own disks, 1 to 20. The status names folders that a node does not have. A node that has
    none of them is not saved. File systems that are mounted below these folders are left out, and the status names
    them, too. Absent: `hook` saves the node."""
    to: (
        Annotated[
            str, Pattern(rf"(/{PATH_SEGMENT}){{2,}}", "a folder such as /fsx/backup, and not a file system itself")
        ]
        | None
    ) = None
    """A folder on a file system of the file. If it does not exist, it is created so that only root may enter it. It
    gets a folder for each node, named by its instance id and accessible to root only. The library never deletes
    anything in it. Required with `paths`."""
    hook: Annotated[str, Pattern(rf"(/{PATH_SEGMENT})+", "a program such as /fsx/admin/save-node")] | None = None
    """A program of yours on the nodes, such as one on the shared file system, in place of `paths` and `to`. Only root
    may be able to change it and the folders above it. It runs on the node as root, up to three times. The node is saved
    when it exits with 0. It gets DRAIN_INSTANCE_ID, DRAIN_NODE (Slurm's name), DRAIN_REQUEST and DRAIN_SECONDS, the
    remaining time."""
    timeout_minutes: Annotated[int, Range(1, 1440)] | None = None
    """Maximum time of each of the three tries, in minutes. After that the try is ended and has failed. Absent: as long
    as the node is held."""
    on_failure: Literal["fail", "continue"] = "fail"
    """fail: the node is not drained. Its reservation stays until the backup succeeds or no request names the node.
    continue: it is drained, and its status reports that nothing could be saved."""
    on_unsavable: Literal["fail", "skip"] = "fail"
    """What to do with single files that cannot be saved, such as one that a process keeps writing. fail: the backup
    fails. skip: from the second try on they are left out, the node is saved, and its status and the manifest report how
    many files of which user. Before the last try, processes of users (uid 1001 and above) that keep writing below
    `paths` are ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainAgentConfig:
    """An agent on the controller that drains nodes on request: for `cdk-hyperpod drain`, and for deployments with
    `scale_down.drain`.

    The scripts install it. On a running controller, `cdk-hyperpod lifecycle run drain` installs it. A change touches no
    running node.
    """

    backup: Annotated[DrainBackup | None, _DRAIN] = None
    """What is saved of a node. Absent: nothing."""
    operators: Annotated[tuple[Annotated[str, ROLE_ARN], ...], IN_PLACE] = ()
    """IAM roles that may write the operators' drain request, as `cdk-hyperpod drain` and `undrain` do, such as
    arn:aws:iam::111122223333:role/aws-reserved/sso.amazonaws.com/us-west-2/AWSReservedSSO_Operators_0123456789abcdef.
    At most 100, with 15,000 characters together, because the bucket's policy lists them. Absent: every principal with
    permission in S3, and a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmConfig:
    """What Slurm does besides running jobs."""

    accounting_database: Annotated[AccountingDatabase | None, _DATABASE] = None
    """The database of accounts and history. Absent: a database on the controller node, which is lost with the node. A
    change updates the cluster and terminates no node."""
    accounts: Annotated[tuple[SlurmAccount, ...], _ACCOUNTS] = ()
    """Accounts and their limits. Absent: every user may run jobs, without limits. Before you remove the last account,
    remove its users and run the step: without accounts in the file the scripts do not change the database."""
    metadata_users: Annotated[
        tuple[SlurmUser, ...] | None, new_nodes("lifecycle run metadata applies it to the others")
    ] = None
    """Users whose jobs may reach the instance's metadata, and so assume the node's role. []: no user. Root, the
    system's users and the image's own user always reach it. All other users then do not, and neither do containers
    behind a bridge: an nft rule on every node rejects their calls. Absent: every user's jobs can assume the role of
    login and compute nodes, with all that is granted to the cluster. The controller's metadata is closed to all users."""
    partitions: Annotated[Mapping[SlurmPartitionName, SlurmPartition], _SLURM_CONF] = field(default_factory=dict)
    """Settings of partitions by name: those of the compute groups, and dev, in which HyperPod has all nodes. Absent: as
    HyperPod has them."""
    qos: Annotated[tuple[SlurmQos, ...], _ACCOUNTS] = ()
    """QOS: priorities, limits and preemption for jobs. Absent: Slurm's own, normal."""
    conf: Annotated[SlurmFiles | None, _SLURM_CONF] = None
    """Files with lines of yours for slurm.conf and Slurm's other files. Absent: none."""
    prolog: Annotated[str | None, _HOOKS] = None
    """A folder beside this file. root runs its programs on each node of a job before the job starts, in the order of
    their names, after a Prolog that slurm.conf has already. A program that fails or takes too long drains the node, and
    Slurm requeues and holds the job. New programs are tried on one idle node before jobs depend on them. Absent: none."""
    epilog: Annotated[str | None, _HOOKS] = None
    """The same after a job. A program that fails drains the node. Absent: none."""
    hook_seconds: Annotated[int, Range(1, 600), _HOOKS] = 60
    """Maximum time of each program of `prolog` and `epilog`, in seconds."""
    keep_state: Annotated[bool, _STATE] = True
    """Copy the controller's state to the shared file system each minute, and its own accounting database each hour. A new
    controller restores them: jobs, reservations, drained nodes and job ids (docs/controller-replaced.md). false: they are
    lost when HyperPod replaces the controller."""
    drain: Annotated[DrainAgentConfig | None, _DRAIN] = None
    """An agent on the controller that drains nodes, and saves their data, before they are deleted. Absent: there is no
    agent, and no bucket for its requests. Before you remove this from the file, release held nodes with `cdk-hyperpod
    undrain`: the bucket is deleted, and the agent on a running controller gets no more requests."""

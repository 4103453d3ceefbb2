"""Copy folders of this node to the shared file system, and prove that the copy is the same; or run the owner's own hook. A job
of the drain agent's.

The agent sends this folder to Slurm as one script (script.py): nothing of it is on the node. So nothing here may import what
is outside of it.

Every regular file is copied, read again at the target and compared by its sha256; then the manifest is written, by a rename.
What an earlier try has copied is compared and not written again. Links are copied as links, holes stay holes, hard links stay
links within a path; ACLs and extended attributes are copied, or counted. Pipes, sockets and devices are counted, and left.
Mounts are named, and left. Nothing at the target is ever deleted: what has another kind by now, as a folder that is a link, is
set aside, and so is what the node has no more, so that a restore does not bring it back.

This runs as root in folders where users write, now and in an earlier try. So every folder is opened in the one above it, and
nothing is reached through a link, neither here nor at the target. A hook is run only where root alone could have written it.

    TO/INSTANCE/files/...          the folders, by their own paths
    TO/INSTANCE/aside/...          what an earlier try or backup has copied, and is of another kind by now, or gone
    TO/INSTANCE/SHA256SUMS         as `sha256sum --check` reads it in files/
    TO/INSTANCE/SHA256SUMS.sparse  the same of files with large holes: the sum of their blocks of data (Sum) alone
    TO/INSTANCE/manifest.json      {"schema": 1, "request": ..., "node": ..., "paths": [...], "files": N, "bytes": N, ...};
                                   while a backup is made, and after one that failed, there is none
    TO/INSTANCE/manifest.before.json  that of the backup before

    job.py       where it begins: the drain from within the job, and the owner's hook
    folders.py   the backup of folders, step by step
    target.py    the folder at the target: what must be root's alone
    survey.py    how much there is, and whether room and time are enough
    walk.py      going through folders
    copying.py   what is done with each file and name; content.py: the bytes and attributes of one file
    changes.py   what is written meanwhile, and by whom
    manifest.py  what is beside the copy: what was left out, and sums
    wording.py   errors, and how they name files, owners and amounts

Only the standard library, and nothing newer than Python 3.8.
"""

"""The drain agent's job on a node: copy folders to the shared file system and verify the copy, or run the owner's own hook.

The agent sends this folder to Slurm as one script (script.py), and the node has none of the agent's files. So nothing here may
import anything outside of this folder.

Every regular file is copied, read again at the target, and compared by its sha256. Then the manifest is written, by a rename. Files
that an earlier try has copied are compared and not written again. Links are copied as links. Holes stay holes. Hard links stay links
within a path. ACLs and extended attributes are copied; those that cannot be copied are counted. Pipes, sockets and devices are
counted and not copied. Mounts are named and not copied. Nothing at the target is ever deleted. What has another type by now, or no
longer exists on the node, is moved to aside/, so that a restore does not bring it back.

The job runs as root in folders where users write, also during the copy. So every folder is opened from the one above it, and no link
is followed, neither on the node nor at the target. A hook runs only if root alone could have written it.

    TO/INSTANCE/files/...          the folders, by their own paths
    TO/INSTANCE/aside/...          what was copied earlier, and has another type by now or no longer exists
    TO/INSTANCE/SHA256SUMS         as `sha256sum --check` reads it in files/
    TO/INSTANCE/SHA256SUMS.sparse  the same for files with large holes: sums of their data alone (Sum)
    TO/INSTANCE/manifest.json      {"schema": 1, "request": ..., "node": ..., "paths": [...], "files": N, "bytes": N, ...};
                                   absent while a backup runs, and after one that failed
    TO/INSTANCE/manifest.before.json  the manifest of the backup before

    job.py       the entry point: the drain from within the job, and the owner's hook
    folders.py   the backup of folders, step by step
    target.py    the folder at the target, which root alone may write
    survey.py    how much there is to save, and whether there are room and time enough
    walk.py      the walk through folders
    copying.py   how each file and name is copied; content.py: the bytes and attributes of one file
    changes.py   files that are written meanwhile, and by whom
    manifest.py  the files beside the copy: what was left out, and sums
    wording.py   errors, and how they write names, owners and amounts

Only the standard library, and nothing newer than Python 3.8.
"""

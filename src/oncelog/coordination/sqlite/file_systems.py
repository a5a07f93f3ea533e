"""The kind of file system that a directory is on: SQLite's shared memory and ``flock`` hold on this machine's own only.

Linux says so in ``/proc/self/mountinfo``. Elsewhere it is not known, and nothing is refused.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")
_OVER_A_NETWORK: Final = (
    *("afs", "beegfs", "ceph", "cifs", "coda", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "orangefs"),
    *("pvfs2", "smb3", "smbfs", "vboxsf", "fuse.davfs2", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs"),
)


def network_file_system(directory: Path, mounts: Path = MOUNTS) -> str | None:
    """The kind of network file system that holds ``directory``, None for a local or an unknown one."""
    try:
        device = os.stat(directory).st_dev
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return None
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        mount, _, kind = line.partition(" - ")
        if mount.split(" ")[2:3] == [number]:
            name = kind.split(" ")[0]
            return name if name in _OVER_A_NETWORK else None
    return None

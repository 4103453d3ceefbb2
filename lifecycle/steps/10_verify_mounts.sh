#!/bin/bash
# Usage: 10_verify_mounts.sh PATH TYPE [PATH TYPE]...
#
# Wait until each PATH is the mount point of a file system of TYPE, the name that the kernel has for it (lustre, nfs). Mounts
# nothing: HyperPod mounts what is in the instance group's InstanceStorageConfigs. A node that worked without the shared
# file system would write checkpoints to its own root volume, where they are lost with it.
set -Eeuo pipefail

# shellcheck source-path=SCRIPTDIR source=../lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib.sh"
report_errors

mountinfo=${PROVISION_MOUNTINFO:-/proc/self/mountinfo}
attempts=${PROVISION_ATTEMPTS:-60}
delay_s=${PROVISION_DELAY_S:-5}

# mounted_type PATH: the type of what is mounted there, or an empty line. Of several mounts the last covers the others.
# Reads the kernel's table (proc_pid_mountinfo(5)) and does not touch PATH: a Lustre client whose servers are out of
# reach would hang.
mounted_type() {
	awk -v path="$1" '
		$5 == path { type = ""; for (i = 7; i < NF; i++) if ($i == "-") { type = $(i + 1); break } }
		END { print type }
	' "$mountinfo"
}

# verify PATH TYPE
verify() {
	local type attempt
	for ((attempt = 1; ; attempt++)); do
		type=$(mounted_type "$1")
		# NFS is nfs4 to the kernel where it is version 4.
		if [[ $type == "$2" || $type == "$2"4 ]]; then
			log INFO "$1 is mounted ($type)"
			return
		fi
		if ((attempt >= attempts)); then
			die "$1 is not mounted as $2, found ${type:-nothing} after $attempts checks every $delay_s s; look at the \
file system's status, at TCP ports 988 and 1018-1023 (Lustre) or 2049 (NFS) of its security group, and at the group's InstanceStorageConfigs"
		fi
		((attempt > 1)) || log INFO "waiting until $1 is mounted ($2)"
		# An automount (x-systemd.automount) is not carried out before somebody looks inside.
		[[ $type != autofs ]] || timeout --kill-after=5 10 stat -- "$1/." &>/dev/null || true
		sleep "$delay_s"
	done
}

(($# > 0 && $# % 2 == 0)) || die "usage: ${0##*/} PATH TYPE [PATH TYPE]..., got $# arguments" 2
while (($# > 0)); do
	verify "$1" "$2"
	shift 2
done

#!/bin/bash
# What LifeCycleConfig.OnCreate of every instance group names under EKS. HyperPod runs it as root on each new node, once
# for each root volume, before the node joins the EKS cluster. Every exit code but 0 fails the node.
#
# The HyperPod image brings the container runtime, the kubelet and the drivers, and pods mount the file system through
# its CSI driver. What a node needs from here is room: images of 10 GB and more, and what pods write to emptyDir, fill a
# root volume. Where the group has a second volume (ebs_volumes), or else the node has NVMe disks that the image mounts,
# containerd's and the kubelet's data go there, by bind mounts: those need no file of either, which differ by image.
# `lifecycle: {steps: {container_data: false}}` leaves them where they are. Running it again changes nothing.
# The user's own scripts run before and after that (lifecycle.scripts_before, scripts_after).
# With storage.efa LNet gets the node's EFA devices, before a pod mounts the file system (12_efa.py).
#
# First it compares itself with the sums beside it, where the folder is the library's. Sums and cluster.json are two uploads,
# each of which tells that the other is missing. That tells an incomplete upload and is no defence: whoever writes the script
# can write the sums.
#
#   PROVISION_ROOT      the folder that stands for / in tests; default: none
#   PROVISION_ATTEMPTS  how often a disk that is not mounted yet is looked at; default 12
#   PROVISION_DELAY_S   seconds between two looks; default 5
set -Eeuo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=${PROVISION_ROOT:-}
owed=$root/var/lib/cdk-hyperpod/owed # has a file NAME-start for each service that is stopped for a moment
disks=(/opt/sagemaker /opt/dlami/nvme)

log() {
	printf '%s %s %s: %s\n' "$(date -u +%FT%TZ)" "$1" "${0##*/}" "$2"
}

# bare_disk: whether a disk has neither a file system in use nor a part that has one: it may be mounted in a moment.
bare_disk() {
	lsblk --json --output TYPE,MOUNTPOINT | python3 -c '
import json, sys
def used(device):
    return bool(device.get("mountpoint")) or any(used(child) for child in device.get("children", ()))
disks = [device for device in json.load(sys.stdin)["blockdevices"] if device["type"] == "disk"]
sys.exit(all(used(disk) for disk in disks))'
}

# find_disk: the first of the disks that is mounted, waited for while one may still come.
find_disk() {
	local attempt disk
	for ((attempt = 1; ; attempt++)); do
		for disk in "${disks[@]}"; do
			if mountpoint --quiet "$root$disk"; then
				echo "$disk"
				return
			fi
		done
		((attempt < ${PROVISION_ATTEMPTS:-12})) && bare_disk || return 0
		sleep "${PROVISION_DELAY_S:-5}"
	done
}

# start_again SERVICE: start what was stopped, by this run or by one before it that was killed.
start_again() {
	[[ -e $owed/$1-start ]] || return 0
	systemctl start "$1"
	rm "$owed/$1-start"
}

# move_data SERVICE DISK: bind DISK/SERVICE to /var/lib/SERVICE, now and after a reboot.
move_data() {
	local target=/var/lib/$1 source=$2/$1
	if mountpoint --quiet "$root$target"; then
		start_again "$1"
		log INFO "the data of $1 are on a disk of their own"
		return
	fi
	if systemctl is-active --quiet "$1"; then
		mkdir -p "$owed"
		touch "$owed/$1-start"
		systemctl stop "$1"
	fi
	mkdir -p "$root$source" "$root$target"
	cp -a "$root$target/." "$root$source/"
	grep -qF " $target none bind" "$root/etc/fstab" ||
		echo "$source $target none bind,nofail,x-systemd.requires-mounts-for=$2 0 0" >>"$root/etc/fstab"
	mount --bind "$root$source" "$root$target"
	start_again "$1"
	log INFO "the data of $1 are in $source"
}

# container_data: put the data of containerd and of the kubelet on a disk, if the node has one.
container_data() {
	local disk
	if grep -Eqs '"container_data": *false' "$here/cluster.json"; then
		log INFO "nothing to do on $(uname -n): container_data is switched off"
		return
	fi
	disk=$(find_disk)
	if [[ -z $disk ]]; then
		log INFO "nothing to do on $(uname -n): nothing is mounted at ${disks[*]}"
		return
	fi
	move_data containerd "$disk"
	move_data kubelet "$disk"
}

# check_upload: whether all scripts came as they were synthesized. Without sums and cluster.json the folder is somebody's own.
check_upload() {
	local wrong
	if [[ -e $here/scripts.sha256 ]]; then
		wrong=$(cd -- "$here" && sha256sum --check --quiet --strict scripts.sha256 2>/dev/null | paste -sd, -) ||
			incomplete "${wrong:-scripts.sha256 holds no sums}"
		[[ -e $here/cluster.json ]] || incomplete "cluster.json is absent"
	elif grep -qs '"checksums": true' "$here/cluster.json"; then
		incomplete "scripts.sha256 is absent"
	fi
}

incomplete() {
	log ERROR "the upload of the scripts is incomplete ($1); compare the prefix that SourceS3Uri names with the folder \
lifecycle/eks, and upload what differs, with scripts.sha256 where it was meant"
	exit 1
}

# run_step STEP: a step in Python that nodes under EKS and Slurm have in common, where cluster.json has something for it.
run_step() {
	python3 -B "$here/eks_steps.py" "$here/cluster.json" "$1" 2>&1 || exit "$?"
}

# has_setting NAME: whether cluster.json has a setting, which is an object.
has_setting() {
	grep -qs "\"$1\": {" "$here/cluster.json"
}

trap 'log ERROR "line $LINENO: exit code $?: $BASH_COMMAND; look at \`lsblk\` and \`journalctl -b\`, then run it again"' ERR
check_upload
if has_setting own_scripts; then run_step scripts_before; fi
if grep -qs '"lustre_efa": true' "$here/cluster.json"; then run_step efa; fi
container_data
if has_setting own_scripts; then run_step scripts_after; fi

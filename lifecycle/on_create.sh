#!/bin/bash
# Usage: on_create.sh NODE_TYPE [STEP]: controller, login or compute, and the one step to run; absent: all that the node
# needs.
#
# HyperPod runs the script that the LifeCycleConfig of the instance group names (OnInitComplete, or OnCreate),
# controller.sh, login.sh or compute.sh, and that runs this one. It does so as root on every new node: once for each root
# volume, so when the node is created or replaced and after a software update, and not on a reboot. Every exit code but 0
# fails the node; 2: NODE_TYPE or STEP is absent or unknown. Running it again is harmless, and heals a node that failed.
#
# It finds out which node this is, and runs the steps that a node needs (provision.py, steps/). What it needs to know of
# the cluster is in cluster.json beside it; without that file, and without sums of the scripts, it only checks that
# HyperPod knows the node, as one of this type. The last line of the log says that all went well, or which step failed, why, and what to do.
#
#   SAGEMAKER_RESOURCE_CONFIG_PATH  set by HyperPod; default /opt/ml/config/resource_config.json
#   PROVISION_LOG                   default /var/log/provision/provisioning.log; HyperPod sends stdout to CloudWatch Logs
#   PROVISION_ATTEMPTS              how often a script checks what it waits for; each script has its own default
#   PROVISION_DELAY_S               seconds between two checks; default 5
set -Eeuo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$here/lib.sh"

# A service's PATH may lack the folders of `ip` and of Slurm. At the end, so that nothing is hidden.
export PATH=$PATH:/usr/sbin:/sbin:/opt/slurm/bin:/opt/slurm/sbin
log_file=${PROVISION_LOG:-/var/log/provision/provisioning.log}

# check_upload: whether all scripts came as they were synthesized. Sums and cluster.json are two uploads, each of which
# tells that the other is missing; without either the folder is somebody's own. It tells an incomplete upload and is no
# defence: whoever writes the scripts can write the sums.
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
	die "the upload of the scripts is incomplete ($1); compare the prefix that SourceS3Uri names with the folder \
lifecycle, and upload what differs, with scripts.sha256 where it was meant"
}

main() {
	set -Eeuo pipefail
	report_errors
	log INFO "started in $here"
	(($# == 1 || $# == 2)) || die "usage: ${0##*/} NODE_TYPE [STEP], got $# arguments; LifeCycleConfig of the instance \
group must name controller.sh, login.sh or compute.sh" 2
	command -v python3 >/dev/null || die "python3 is not on the PATH ($PATH); use an AMI that has it"
	check_upload
	python3 -B "$here/provision.py" "$here/cluster.json" "$@" || exit "$?"
	log INFO "ended with exit code 0"
}

mkdir -p -- "$(dirname -- "$log_file")" || log WARNING "there is no folder for $log_file; logging to stdout only"
# What a step or an own script prints is for root.
{ : >>"$log_file" && chmod 0640 -- "$log_file"; } 2>/dev/null || true
# The exit code is main's: that of tee, which fails when the disk is full, says nothing about the node.
set +e
main "$@" 2>&1 | tee -a -- "$log_file"
exit "${PIPESTATUS[0]}"
